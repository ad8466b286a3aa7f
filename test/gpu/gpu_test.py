"""On a real GPU: what tutti does with its memory, alone and with several ranks on one device.

Needs no CUDA toolkit, only the driver and NCCL. Without a GPU everything is skipped with the reason.
TUTTI_GPU_REPORT names a file for what was run on what.
"""
import array
import ctypes
import datetime
import json
import os
import shutil
import subprocess
import sys
import unittest

COUNT = 1 << 20
FLOAT32, SUM, MAX = 10, 0, 1
LOSSES = (5, 11)  # TUTTI_ERR_PEER_LOST, TUTTI_ERR_REVOKED
LIMIT_S = 300
# Bytes of the types in the order of their numbers; how many operators there are; TUTTI_ERR_INVALID.
WIDTHS, OPS, INVALID, FEW = (1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1), 8, 2, 5000
# A stand-in for the driver, where the test itself is tested.
CUDA = os.environ.get("TUTTI_CUDA_LIBRARY", "libcuda.so.1")


class Gpu:
    """The driver, with device memory in the primary context of one device."""

    def __init__(self, ordinal=0):
        self.lib = ctypes.CDLL(CUDA)
        self.need("cuInit", 0)
        count = ctypes.c_int()
        self.need("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise OSError("the driver knows no device")
        self.count = count.value
        context = ctypes.c_void_p()
        self.need("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.need("cuCtxPushCurrent_v2", context)

    def need(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status != 0:
            raise OSError(f"{name}: CUDA error {status}")

    def version(self):
        number = ctypes.c_int()
        self.need("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def name(self, ordinal=0):
        text = ctypes.create_string_buffer(100)
        self.need("cuDeviceGetName", text, 100, ordinal)
        return text.value.decode()

    def floats(self, value, count=COUNT):
        at = ctypes.c_uint64()
        self.need("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(4 * count))
        host = (ctypes.c_float * count).from_buffer(array.array("f", [value]) * count)
        self.need("cuMemcpyHtoD_v2", at, host, ctypes.c_size_t(4 * count))
        return at

    def bytes(self, content):
        at = ctypes.c_uint64()
        self.need("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(len(content)))
        self.need("cuMemcpyHtoD_v2", at, ctypes.c_char_p(content), ctypes.c_size_t(len(content)))
        return at

    def read_bytes(self, at, length):
        host = ctypes.create_string_buffer(length)
        self.need("cuMemcpyDtoH_v2", host, at, ctypes.c_size_t(length))
        return host.raw

    def stream(self):
        made = ctypes.c_void_p()
        self.need("cuStreamCreate", ctypes.byref(made), 1)  # does not wait for the legacy default one
        return made

    def copy_on(self, stream, to, source, count=COUNT):
        self.need("cuMemcpyAsync", to, source, ctypes.c_size_t(4 * count), stream)

    def read(self, at, count=COUNT):
        host = (ctypes.c_float * count)()
        self.need("cuMemcpyDtoH_v2", host, at, ctypes.c_size_t(4 * count))
        return host


class Rank:
    """A rank through the C API."""

    def __init__(self):
        self.lib = ctypes.CDLL(os.environ["TUTTI_LIBRARY"])
        self.lib.tutti_last_error.restype = ctypes.c_char_p
        self.comm = ctypes.c_void_p()
        self.need("comm_create", None, ctypes.byref(self.comm))
        self.rank = self.lib.tutti_comm_rank(self.comm)
        self.size = self.lib.tutti_comm_size(self.comm)

    def need(self, name, *arguments):
        status = getattr(self.lib, "tutti_" + name)(*arguments)
        if status != 0:
            sys.exit(f"{name}: {self.lib.tutti_last_error().decode()}")

    def call(self, name, *arguments):
        self.need(name, self.comm, *arguments)

    def allreduce(self, at, out, op=SUM):
        self.call("allreduce", at, out, ctypes.c_size_t(COUNT), FLOAT32, op)

    def allreduce_multi(self, inputs, out, count, dtype, op):
        """False where the operator is not for the type."""
        array = (ctypes.c_void_p * len(inputs))(*inputs)
        status = self.lib.tutti_allreduce_multi(self.comm, array, ctypes.c_size_t(len(inputs)), out,
                                                ctypes.c_size_t(count), dtype, op)
        if status not in (0, INVALID):
            sys.exit(f"allreduce_multi: {self.lib.tutti_last_error().decode()}")
        return status == 0

    def loses_a_rank(self, at):
        """Whether a sum fails because a rank is gone."""
        status = self.lib.tutti_allreduce(self.comm, at, at, ctypes.c_size_t(COUNT), FLOAT32, SUM)
        status = status or self.lib.tutti_comm_sync(self.comm, ctypes.c_int64(-1))
        return status in LOSSES

    def shrink(self):
        """Goes on with the ranks that remain."""
        smaller = ctypes.c_void_p()
        self.call("comm_revoke")
        self.call("comm_shrink", ctypes.byref(smaller))
        self.call("comm_destroy")
        self.comm = smaller
        self.rank, self.size = self.lib.tutti_comm_rank(smaller), self.lib.tutti_comm_size(smaller)

    def sync(self):
        self.call("comm_sync", ctypes.c_int64(-1))


def pointer(at):
    return ctypes.c_void_p(at.value if isinstance(at, ctypes.c_uint64) else ctypes.addressof(at))


def add_inputs():
    """Random bits of every type under every operator: on the device, the host's bits come out."""
    gpu, rank = Gpu(), Rank()
    random = __import__("random").Random(rank.rank)
    for dtype, width in enumerate(WIDTHS):
        inputs = [random.randbytes(width * FEW) for _ in range(3)]
        there = [gpu.bytes(content).value for content in inputs]
        here = [ctypes.create_string_buffer(content, len(content)) for content in inputs]
        for op in range(OPS):
            out, expected = gpu.bytes(bytes(width * FEW)), ctypes.create_string_buffer(width * FEW)
            addresses = [ctypes.addressof(content) for content in here]
            if not rank.allreduce_multi(addresses, expected, FEW, dtype, op):
                continue
            rank.allreduce_multi(there, pointer(out), FEW, dtype, op)
            rank.sync()
            if gpu.read_bytes(out, width * FEW) != expected.raw:
                sys.exit(f"rank {rank.rank}: type {dtype}, operator {op}: other bits than the host's")
    rank.call("comm_destroy")


def expect(rank, values, wanted, what):
    if values[0] != wanted or values[len(values) - 1] != wanted:
        sys.exit(f"rank {rank.rank}: {what}: {values[0]} and {values[len(values) - 1]}, not {wanted}")


def order_streams():
    """Copies and collectives on streams of the program's: in order without a wait of the host's."""
    gpu, rank = Gpu(), Rank()
    calc, comm = gpu.stream(), gpu.stream()
    ones, data, result = gpu.floats(1), gpu.floats(0), gpu.floats(0)
    # Long enough that code that does not wait comes too early.
    long_one, long_other = gpu.floats(2, 64 * COUNT), gpu.floats(3, 64 * COUNT)
    rank.call("comm_set_device_stream", comm)
    for _ in range(5):
        gpu.copy_on(calc, data, long_other)
        for _ in range(4):
            gpu.copy_on(calc, long_other, long_one, 64 * COUNT)
        gpu.copy_on(calc, data, ones)
        rank.call("sync_calc_stream", calc)
        rank.allreduce(data, data)
        rank.call("sync_comm_stream", calc)
        gpu.copy_on(calc, result, data)
        gpu.need("cuStreamSynchronize", calc)
        expect(rank, gpu.read(result), rank.size, "after the collective")
    rank.sync()
    rank.call("comm_destroy")


def send_messages():
    """A ring of messages, in a group; a rank alone sends to itself."""
    gpu, rank = Gpu(), Rank()
    following, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    if os.environ.get("TUTTI_DEVICE") != "staged":
        rank.call("comm_use_device", 0)
    for count in (1, 1000, COUNT):
        sent, got = gpu.floats(rank.rank + 1), gpu.floats(-1)
        length = ctypes.c_size_t(count)
        rank.call("group_start")
        rank.call("send", sent, length, FLOAT32, following, 7)
        rank.call("recv", got, length, FLOAT32, before, 7, None)
        rank.call("group_end")
        rank.sync()
        values = gpu.read(got)
        expect(rank, values[:count], before + 1, "what was received")
        if count < COUNT:
            expect(rank, values[count:], -1, "what is behind it")
    rank.call("comm_destroy")


def outlive_a_rank():
    """The middle rank ends without a goodbye. The others shrink: sums, broadcasts and messages of device memory."""
    own_device = int(os.environ["TUTTI_RANK"]) if os.environ.get("TUTTI_DEVICE") != "staged" else 0
    gpu, rank = Gpu(own_device), Rank()
    data = gpu.floats(1)
    rank.allreduce(data, data)
    rank.sync()
    rank.call("barrier")
    if rank.rank == rank.size // 2:
        os._exit(0)
    if not rank.loses_a_rank(data):
        sys.exit(f"rank {rank.rank}: no loss, but: {rank.lib.tutti_last_error().decode()}")
    rank.shrink()
    for _ in range(3):
        sums, sent, got = gpu.floats(rank.rank + 1), gpu.floats(rank.rank + 1), gpu.floats(-1)
        rank.allreduce(sums, sums)
        rank.call("sendrecv", sent, ctypes.c_size_t(COUNT), (rank.rank + 1) % rank.size, 3, got, ctypes.c_size_t(COUNT),
                  (rank.rank - 1) % rank.size, 3, FLOAT32, None)
        rank.call("broadcast", sent, ctypes.c_size_t(COUNT), FLOAT32, rank.size - 1)
        rank.sync()
        expect(rank, gpu.read(sums), rank.size * (rank.size + 1) / 2, "the sum of the survivors")
        expect(rank, gpu.read(got), (rank.rank - 1) % rank.size + 1, "what was received")
        expect(rank, gpu.read(sent), rank.size, "what was broadcast")
    rank.call("comm_destroy")


def work(case):
    """One rank of a job, under tutti-run."""
    if case == "inputs":
        return add_inputs()
    if case == "streams":
        return order_streams()
    if case == "messages":
        return send_messages()
    if case == "loss":
        return outlive_a_rank()
    on_host = case == "with_host_ranks" and os.environ["TUTTI_RANK"] == "0"
    own_device = int(os.environ["TUTTI_RANK"]) if case == "own_devices" else 0
    gpu = None if on_host else Gpu(own_device)
    rank = Rank()
    total = rank.size * (rank.size + 1) / 2
    for _ in range(3):
        if on_host:
            data = (ctypes.c_float * COUNT)(*([rank.rank + 1] * COUNT))
        else:
            data = gpu.floats(rank.rank + 1)
        rank.allreduce(pointer(data), pointer(data))
        rank.allreduce(pointer(data), pointer(data), MAX)
        rank.sync()
        values = data if on_host else gpu.read(data)
        if values[0] != total or values[COUNT - 1] != total:
            sys.exit(f"rank {rank.rank}: {values[0]} and {values[COUNT - 1]}, not {total}")
    rank.call("comm_destroy")


try:
    GPU = Gpu() if __name__ == "__main__" and len(sys.argv) < 3 else None
    MISSING = ""
except OSError as reason:
    GPU, MISSING = None, str(reason)
REPORT = []


@unittest.skipIf(bool(MISSING), MISSING)
class OnGpu(unittest.TestCase):
    def job(self, case, ranks, *options, under=(), **env):
        command = [os.environ["TUTTI_RUN"], "-n", str(ranks), *options, *under, sys.executable, __file__, "rank", case]
        done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        REPORT.append({"case": case, "ranks": ranks, "options": options, "settings": env, "passed": done.returncode == 0})
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])

    def test_one_rank_through_nccl(self):
        self.job("alone", 1)

    def test_one_rank_through_the_host(self):
        self.job("alone", 1, TUTTI_DEVICE="staged")

    def test_ranks_that_share_a_device_through_the_host(self):
        self.job("shared", 3, TUTTI_DEVICE="staged")

    def test_tiles_that_overlap_the_wire(self):
        self.job("shared", 2, TUTTI_DEVICE="staged", TUTTI_DEVICE_TILE_BYTES="262144")

    def test_nccl_within_acted_hosts_and_the_wire_between(self):
        if GPU.count < 4:
            self.skipTest(f"the machine has {GPU.count} GPUs, not two for each of two hosts")
        self.job("own_devices", 4, "--hosts-act", "2", TUTTI_DEVICE="hierarchical")

    def test_ranks_with_and_without_a_device(self):
        self.job("with_host_ranks", 3, TUTTI_DEVICE="staged")

    def test_inputs_added_on_the_device_have_the_hosts_bits(self):
        self.job("inputs", 1)
        self.job("inputs", 2, TUTTI_DEVICE="staged")

    def test_streams_are_ordered_by_events(self):
        self.job("streams", 1)
        self.job("streams", 2, TUTTI_DEVICE="staged")

    def test_messages(self):
        self.job("messages", 1)
        self.job("messages", 3, TUTTI_DEVICE="staged")

    def test_the_others_shrink_after_a_loss(self):
        self.job("loss", 3, "--keep-going", TUTTI_DEVICE="staged")
        if GPU.count >= 3:
            self.job("loss", min(GPU.count, 8), "--keep-going")

    def test_messages_straight_from_device_to_device(self):
        why_not = no_cuda_in_ucx()
        if why_not:
            self.skipTest(why_not)
        self.job("messages", 1, TUTTI_DEVICE="staged", TUTTI_TRANSPORT="ucx")
        self.job("messages", 3, TUTTI_DEVICE="staged", TUTTI_TRANSPORT="ucx")

    def test_ranks_that_share_a_device_through_nccl(self):
        version = nccl_version()
        if version == "none" or [int(part) for part in version.split(".")[:2]] < [2, 30]:
            self.skipTest(f"NCCL {version} does not let ranks share a device; 2.30 does")
        self.job("shared", 2, NCCL_MULTI_RANK_GPU_ENABLE="1")

    def test_nothing_that_the_sanitizer_finds(self):
        tool = shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
        if not tool:
            self.skipTest("there is no compute-sanitizer")
        # NCCL asks for kernels of other devices, and goes on without: errors of calls are the program's to judge.
        check = (tool, "--target-processes", "all", "--error-exitcode", "9", "--report-api-errors", "no")
        self.job("inputs", 1, under=check)
        self.job("alone", 1, under=check, TUTTI_DEVICE="staged", TUTTI_DEVICE_TILE_BYTES="262144")

    def test_the_benchmark_in_turn_with_nccl(self):
        if "TUTTI_BENCH" not in os.environ:
            self.skipTest("tutti-bench was not built")
        command = [os.environ["TUTTI_BENCH"], "allreduce", "--ranks", str(min(GPU.count, 8)), "--memory", "device", "--peer",
                   "nccl", "-b", "8", "-e", "16M", "-f", "64", "-n", "20", "-w", "5", "--check"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        REPORT.append({"case": "benchmark", "command": command[1:], "passed": done.returncode == 0, "output": done.stdout})
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])

    def test_strict_checking(self):
        self.job("alone", 1, TUTTI_CHECK="strict")

    def test_ranks_that_share_a_device_are_refused_by_name(self):
        command = [os.environ["TUTTI_RUN"], "-n", "2", sys.executable, __file__, "rank", "shared"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL)
        REPORT.append({"case": "refused", "ranks": 2, "passed": done.returncode != 0})
        self.assertIn("ranks 0 and 1 both use the GPU", done.stdout + done.stderr)

    def test_a_device_each_through_nccl(self):
        if GPU.count < 2:
            self.skipTest(f"the machine has {GPU.count} GPU")
        self.job("own_devices", min(GPU.count, 8))


def no_cuda_in_ucx():
    """Why UCX does not take a device's memory here; None: it does."""
    if "TUTTI_INFO" not in os.environ:
        return "tutti-info was not built"
    told = subprocess.run([os.environ["TUTTI_INFO"], "--json", "transports"], capture_output=True, text=True, check=True,
                          timeout=LIMIT_S, stdin=subprocess.DEVNULL).stdout
    ucx = next(item for item in json.loads(told)["transports"]["items"] if item["name"] == "ucx")
    return None if "cuda" in ucx.get("memory", []) else ucx.get("no_cuda_memory") or ucx["why_not"]


def nccl_version():
    for path in (os.environ.get("TUTTI_NCCL_LIBRARY"), "libnccl.so.2"):
        try:
            number = ctypes.c_int()
            if path and ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) == 0:
                return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
        except OSError:
            continue
    return "none"


def tearDownModule():
    path = os.environ.get("TUTTI_GPU_REPORT")
    if not path:
        return
    facts = {"date": datetime.date.today().isoformat(), "missing": MISSING, "nccl": nccl_version(),
             "driver": GPU.version() if GPU else "none", "device": GPU.name() if GPU else "none",
             "devices": GPU.count if GPU else 0, "cases": REPORT}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=2)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "rank":
        work(sys.argv[2])
    else:
        unittest.main()
