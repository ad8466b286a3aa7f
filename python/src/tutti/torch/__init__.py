"""tutti as a backend of torch.distributed.

    import torch.distributed as dist
    import tutti.torch                      # torch 2.14 and newer find it without this line

    dist.init_process_group("tutti")        # tensors of hosts and of CUDA devices; or "cpu:tutti,cuda:nccl"
    tutti.torch.install(as_gloo=True)       # from now on "gloo" is tutti too; TUTTI_AS_GLOO=1 does it without this line

The backend is C++ for one version of torch. A wheel of tools/wheels has it compiled for some versions; for others it is
compiled when it is first used, once (``python -m tutti.torch`` does it ahead of time). pg_options takes tutti's settings
by name:
``init_process_group("tutti", pg_options=tutti.torch.Options(transport="tcp"))``.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from .._errors import with_advice

OLDEST_TORCH = (2, 4)


def _import_torch():
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise ImportError(with_advice(f"tutti.torch needs PyTorch, which cannot be imported here ({error})",
                                      "pip install torch")) from error
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise ImportError(with_advice(f"tutti.torch needs PyTorch 2.4 or newer, but this is {torch.__version__}",
                                      "pip install --upgrade torch"))
    if not dist.is_available():
        raise ImportError(with_advice(f"this PyTorch ({torch.__version__}) was built without torch.distributed",
                                      "install a build that has it"))
    return torch, dist, version


torch, dist, TORCH = _import_torch()

from .._settings import texts  # noqa: E402
from . import _errors, _flight  # noqa: E402
from ._errors import (  # noqa: E402
    AbortedError,
    Error,
    MismatchError,
    PeerLostError,
    RevokedError,
    TimedOutError,
    UnsupportedError,
)

from ._batch_norm import SyncBatchNorm, convert_sync_batchnorm  # noqa: E402
from ._replicas import LocalSGD, sync_buffers  # noqa: E402
from ._sharded_softmax import ShardedSoftmax  # noqa: E402

__all__ = ["AbortedError", "Error", "LocalSGD", "MismatchError", "Options", "PeerLostError", "RevokedError",
           "ShardedSoftmax", "SyncBatchNorm", "TimedOutError", "UnsupportedError", "abort", "backend_of", "build",
           "communicator", "convert_sync_batchnorm", "dump", "install", "last_error", "lost_ranks", "memory_stats",
           "register", "sync_buffers"]

_extension = None
_building = threading.Lock()
BUILTIN_GLOO = "gloo_builtin"


class Options(dict):
    """tutti's settings for one group: Options(transport=["shm", "tcp"]). Names: docs/reference/configuration.md.

    True and False are 1 and 0; None leaves a setting as it is.
    """


def build():
    """The compiled backend; compiles it if this version of torch has none yet."""
    global _extension
    if _extension is None:
        with _building:  # of two threads that make groups at once, one loads the module
            if _extension is None:
                from . import _build

                extension = _build.load()
                extension.set_error_factory(_errors.make)
                _extension = extension
    return _extension


@atexit.register  # early: it is to be called after what programs register
def _interpreter_ends():
    if _extension is not None:
        _extension.interpreter_ends()


def _settings(options) -> dict[str, str]:
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise TypeError(with_advice(f"pg_options for the backend tutti is a {type(options).__name__}, not a dict of "
                                    "settings",
                                    "pass a tutti.torch.Options"))
    return texts(options)


def _create(options, backend_options=None):
    timeout_ms = round(options.timeout.total_seconds() * 1000)
    if getattr(options, "enable_reconfigure", False):
        return build().create_later(options.store, options.group_rank, options.group_size, timeout_ms,
                                    options.group_id, _settings(backend_options))
    return build().create(options.store, options.group_rank, options.group_size, timeout_ms,
                          options.group_id, _settings(backend_options))


def _devices() -> list[str]:
    # Torch prefers a group's CUDA device for its own data, so a group must not claim a missing device. The check uses
    # NVML first: after a CUDA call, a process cannot fork children that use CUDA.
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def register() -> None:
    """Makes the name "tutti" known to torch.distributed; the import does it.

    For tensors in host memory, and for those of CUDA devices if torch.cuda.is_available(). TUTTI_AS_GLOO=1 calls
    install(as_gloo=True, as_default=True) as well.
    """
    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=_devices())
        if os.environ.get("TUTTI_AS_GLOO", "0") not in ("", "0"):
            install(as_gloo=True, as_default=True)


def _create_as_gloo(options, backend_options=None):
    # Gloo's own options, such as its number of threads, have no meaning here.
    return _create(options, backend_options if isinstance(backend_options, dict) else None)


def _take_the_name_gloo() -> None:
    plugins, kind = dist.Backend._plugins, dist.Backend.backend_type_map["gloo"]
    if hasattr(dist.Backend, "_ensure_backend_registered"):
        dist.Backend._ensure_backend_registered("gloo")  # otherwise torch does it at a group's first use
    builtin = plugins.get("GLOO")
    if builtin is None:
        raise RuntimeError(with_advice(f"install: torch {torch.__version__} does not let another backend take the "
                                       "name gloo",
                                       "use torch 2.14 or newer, the name tutti, or install(as_default=True)"))
    dist.Backend.register_backend(BUILTIN_GLOO, *builtin, devices=dist.Backend.backend_capability["gloo"],
                                  _backend_type=kind)
    # Torch tells devices by this type: a group of type gloo is for tensors in host memory.
    dist.Backend.register_backend("gloo", _create_as_gloo, extended_api=True, devices=_devices(), _backend_type=kind)
    # Torch attaches its flight recorder to a group unless its backend's name says that it records itself.
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    if "gloo" in recording:
        recording.discard("gloo")
        recording.add(BUILTIN_GLOO)
    os.environ["TUTTI_AS_GLOO"] = "1"  # for the processes that this one starts, such as those that write checkpoints
    logging.getLogger(__name__).warning("tutti answers to the name gloo from now on; torch's own is %s", BUILTIN_GLOO)


def install(as_gloo: bool = False, as_default: bool = False) -> None:
    """Makes torch.distributed use tutti if a program, or a library that it uses, does not name it.

    as_gloo: from now on the name "gloo" means tutti in this process and, through TUTTI_AS_GLOO=1 in its environment, in
    the processes that it starts; torch's own is "gloo_builtin". Existing groups keep their backend. as_default: groups
    without a named backend use tutti for tensors in host memory. All ranks must do the same. RuntimeError: this torch
    does not let its gloo be replaced (2.14 and newer do).
    """
    register()
    plugins = dist.Backend._plugins
    if as_gloo and BUILTIN_GLOO.upper() not in plugins:
        _take_the_name_gloo()
    if as_default:
        dist.Backend.default_device_backend_map["cpu"] = "gloo" if BUILTIN_GLOO.upper() in plugins else "tutti"


def backend_of(group=None):
    """The backend object of a group that uses tutti, for tensors in host memory or of CUDA devices.

    ValueError: there is no such group on this rank.
    """
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError(with_advice("there is no group: init_process_group has not been called",
                                     "call torch.distributed.init_process_group(\"tutti\") before"))
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(with_advice("this rank is not in the group", "make the call on the group's ranks only"))
    found = []
    for device in ("cpu", "cuda"):
        try:
            backend = group._get_backend(torch.device(device))
        except RuntimeError:
            continue  # the group has no backend for that device type
        found.append(getattr(backend, "wrapped_pg", backend))
    return next((backend for backend in found if build().is_own(backend)), found[0])


def abort(group=None) -> None:
    """Fails all pending work of the group with AbortedError, on every rank.

    Afterwards the group can only be destroyed. Older torch has no such call.
    """
    build().abort(backend_of(group))


def dump(path: str | os.PathLike, group=None, format: str = "json") -> None:
    """Writes the group's flight recorder: its last 1,024 collectives on this rank.

    format "json": one JSON object a line, to the file path. "torch": in the format of torch's own recorder; path is a
    prefix, to which each rank adds its number in the job ("fr/trace_" becomes "fr/trace_2"). If all ranks of the group
    write into one folder, python -m torch.distributed.flight_recorder.fr_trace FOLDER compares their files; torch 2.10
    and newer have that program. ValueError: another format, or a prefix from which that program cannot tell the rank.
    """
    if format not in ("json", "torch"):
        raise ValueError(with_advice(f"dump: unknown format {format!r}", "pass format=\"json\" or format=\"torch\""))
    backend = backend_of(group)
    if format == "torch":
        _flight.write(path, group or dist.group.WORLD, lambda fd: build().dump(backend, fd),
                      f"tutti {build().library_version()}")
        return
    with open(path, "wb") as file:
        build().dump(backend, file.fileno())


def last_error(group=None) -> Error | None:
    """The exception of the group's latest failed call, or of the failure that ended the group; None if none failed.

    A failure in torch's own threads, such as the backward pass of a DistributedDataParallel, reaches the program as a
    DistBackendError with the text alone. This exception has rank, operation, cause and status too, until the group is
    destroyed. ValueError: there is no such group on this rank.
    """
    return build().last_error(backend_of(group))


def lost_ranks(group=None) -> list[int]:
    """Ends the group's work on all ranks, and returns the ranks that are gone, for torch.distributed.shrink_group.

    All ranks that remain call it, also after a failure, and get the same list. Pending work fails with RevokedError.
    ValueError: there is no such group on this rank.
    """
    return build().lost_ranks(backend_of(group))


def memory_stats(group=None) -> dict[str, int]:
    """The bytes of host memory that the group uses, by kind; from torch 2.12 on, its backend's memory_stats() too.

    The group's: allocated_bytes (allocate_tensor), registered_bytes, work_bytes (intermediate results), recorder_bytes.
    The process' for messages of all groups: mapped_bytes (shared memory; unused pages take none), cell_bytes.
    """
    return build().memory_stats(backend_of(group))


def communicator(group=None):
    """Collective: a tutti.Communicator of the group's ranks, for arrays and for tutti.checkpoint.

    It shares the group's connections but is otherwise independent: close() it before the group is destroyed.
    """
    from .. import communicator as arrays

    return arrays.adopt(build().duplicate(backend_of(group)))


register()
