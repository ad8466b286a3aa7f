from . import checkpoint as checkpoint
from ._errors import (
    AbortedError as AbortedError,
    AuthenticationError as AuthenticationError,
    Error as Error,
    InvalidError as InvalidError,
    MismatchError as MismatchError,
    OutOfMemoryError as OutOfMemoryError,
    PeerLostError as PeerLostError,
    RevokedError as RevokedError,
    SystemFailureError as SystemFailureError,
    TimedOutError as TimedOutError,
    UnsupportedError as UnsupportedError,
)
from ._handles import handle as handle, reconfigure as reconfigure
from .communicator import (
    ANY_SOURCE as ANY_SOURCE,
    Communicator as Communicator,
    Plan as Plan,
    Request as Request,
    info as info,
    init as init,
)

__version__: str
