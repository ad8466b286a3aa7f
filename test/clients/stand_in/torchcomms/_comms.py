"""Calls a backend in the same way as the compiled module of this name: arguments by position, and no options of calls.

A backend's call returns None if it is over, or an object with wait(). A backend has init() called after its
constructor, which gets no arguments; split() makes a communicator without it.
"""
import datetime
import enum

RedOpType = enum.Enum("RedOpType", "SUM PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM AVG")


class ReduceOp:
    def __init__(self, kind, factor=None):
        self.type, self.factor = kind, factor

    @staticmethod
    def PREMUL_SUM(factor):  # noqa: N802
        return ReduceOp(RedOpType.PREMUL_SUM, factor)


for kind in RedOpType:
    if kind is not RedOpType.PREMUL_SUM:
        setattr(ReduceOp, kind.name, ReduceOp(kind))


class CommOptions:
    def __init__(self):
        self.timeout, self.store, self.hints = datetime.timedelta(seconds=600), None, {}


class TorchCommBackend:
    def __init__(self):
        self.told = None

    def _set_device_and_options(self, device, options):
        self.told = (device, options)


class TorchWork:
    def __init__(self, work):
        self.work, self.completed = work, work is None

    def is_completed(self):
        return self.completed

    def wait(self):
        if not self.completed:
            self.work.wait()
        self.completed = True


CALLS = ("send", "recv", "broadcast", "all_reduce", "reduce", "all_gather", "all_gather_v", "all_gather_single",
         "reduce_scatter", "reduce_scatter_v", "reduce_scatter_single", "all_to_all_single", "all_to_all_v_single",
         "all_to_all", "barrier", "scatter", "gather")


class TorchComm:
    def __init__(self, backend, device, options):
        self.backend, self.device, self.options = backend, device, options

    def __getattr__(self, name):
        if name not in CALLS:
            raise AttributeError(name)

        def call(*arguments, async_op, hints=None, timeout=None):
            return TorchWork(getattr(self.backend, name)(*arguments, async_op))
        return call

    def get_rank(self):
        return self.backend.get_rank()

    def get_size(self):
        return self.backend.get_size()

    def get_backend(self):
        return self.backend.get_backend_name()

    def get_name(self):
        return self.backend.get_comm_name()

    def finalize(self):
        self.backend.finalize()

    def split(self, ranks, name, timeout=None):
        options = CommOptions()
        options.timeout = timeout or self.options.timeout
        part = self.backend.split(ranks, name, options)
        if part is None:
            return None
        assert part.told == (self.device, options), part.told
        return TorchComm(part, self.device, options)


_backends = {}


def _is_backend_registered(name):
    return name in _backends


def register_backend(name, backend_class):
    if name in _backends:
        raise RuntimeError(f"backend {name} is registered already")
    _backends[name] = backend_class


def new_comm(backend, device, name, timeout=None, store=None, hints=None):
    if backend not in _backends:
        import torchcomms

        torchcomms._load_backend(backend)
    options = CommOptions()
    options.timeout, options.store, options.hints = timeout or options.timeout, store, hints or {}
    made = _backends[backend]()
    made.init(device, name, options)
    return TorchComm(made, device, options)
