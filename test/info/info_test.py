"""tutti-info: this machine's report, and those of machines that are acted out as folders."""
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

INFO = os.environ["TUTTI_INFO"]
WITH_GPUS = unittest.skipUnless("TUTTI_FAKE_CUDA" in os.environ, "this build has no GPU support")
SECTIONS = ["build", "cpu", "numa", "memory", "limits", "interfaces", "rdma", "gpus", "transports", "launch"]
HANG_GUARD_S = 60
MIB = 1 << 20


def execute(*arguments, limits=(), **more):
    def apply():
        for what, soft in limits:
            resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))
    return subprocess.run([INFO, *map(str, arguments)], capture_output=True, text=True, timeout=HANG_GUARD_S,
                          stdin=subprocess.DEVNULL, preexec_fn=apply if limits else None, check=False, **more)


class Info(unittest.TestCase):
    def text(self, *arguments, **more):
        done = execute(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def json(self, *arguments, **more):
        return json.loads(self.text("--json", *arguments, **more))


class ThisMachine(Info):
    def test_every_section_is_there_in_order(self):
        titles = [line for line in self.text().splitlines() if line and not line.startswith(" ")]
        self.assertEqual(titles, SECTIONS)
        self.assertEqual(list(self.json()), SECTIONS)

    def test_only_the_sections_that_were_asked_for(self):
        self.assertEqual(list(self.json("transports", "cpu")), ["cpu", "transports"])

    def test_what_the_processor_is(self):
        cpu = self.json("cpu")["cpu"]
        self.assertEqual(cpu["usable_cores"], len(os.sched_getaffinity(0)))
        self.assertIn(cpu["kernel"].split()[1], os.uname().release)
        self.assertTrue(cpu["instruction_sets"])
        self.assertIn("the kernels use", self.text("cpu"))

    def test_every_transport_is_there_and_says_why_it_cannot(self):
        transports = {item["name"]: item for item in self.json("transports")["transports"]["items"]}
        self.assertLessEqual({"inproc", "shm", "tcp", "ucx", "ofi"}, set(transports))
        built = self.json("build")["build"]["transports"]
        for name, item in transports.items():
            self.assertTrue(item["usable"] or item["why_not"], item)
            if name not in built:
                self.assertRegex(item["why_not"], r"^this build has no (UCX|libfabric): ")
            for part in item.get("parts", []):
                self.assertTrue(part["usable"] or part["why_not"], part)
        self.assertTrue(transports["shm"]["usable"])
        self.assertEqual(transports["tcp"]["memory"], ["host"])
        if "ucx" in built:
            takes = "cuda" in transports["ucx"]["memory"]
            self.assertNotEqual(takes, "CUDA" in transports["ucx"].get("no_cuda_memory", ""))
        loopback = [part for part in transports["tcp"]["parts"] if part["name"] == "lo"]
        self.assertTrue(any("127.0.0.1" in part["detail"] for part in loopback))

    def test_the_machine_is_not_named(self):
        name = os.uname().nodename
        if len(name) > 8 and name != "localhost":  # shorter ones may be a word of the report
            self.assertNotIn(name, self.text())

    def test_few_locked_bytes_bring_advice(self):
        little = [(resource.RLIMIT_MEMLOCK, 64 * 1024)]
        text = self.text("limits", limits=little)
        self.assertRegex(text, r"locked memory +64 KiB")
        self.assertRegex(text, r"! .*the limit of 64 KiB is low: use `ulimit -l unlimited`")
        self.assertEqual(self.json("limits", limits=little)["limits"]["locked_memory"]["soft"], 64 * 1024)

    def test_few_open_files_bring_advice(self):
        self.assertRegex(self.text("limits", limits=[(resource.RLIMIT_NOFILE, 200)]),
                         r"! 200 open files are few .*`ulimit -n \d+`")

    def test_a_report_that_cannot_be_written_fails_even_if_that_cannot_be_said(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            heard, unheard = (subprocess.run([INFO], stdout=full, stderr=stderr, text=True, timeout=HANG_GUARD_S,
                                             check=False) for stderr in (subprocess.PIPE, full))
        self.assertEqual((heard.returncode, unheard.returncode), (1, 1))
        self.assertIn("cannot write the report: No space left on device", heard.stderr)

    def test_what_libraries_log_is_not_in_the_report(self):
        for name in ("UCX_LOG_LEVEL", "FI_LOG_LEVEL"):
            self.assertEqual(list(self.json(env={**os.environ, name: "debug"})), SECTIONS)

    def test_wrong_usage(self):
        for wrong in (["carrier_pigeon"], ["--root", "/nowhere/at/all"], ["--frobnicate"]):
            self.assertEqual(execute(*wrong).returncode, 2, wrong)
        self.assertIn("EXAMPLES", self.text("--help"))
        self.assertRegex(self.text("--version"), r"^\d+\.\d+\.\d+")


class ActedMachine(Info):
    """Folders in place of /proc and /sys."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")

    def pci(self, slot, vendor, device, kind, driver=None):
        folder = f"sys/bus/pci/devices/{slot}/"
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            self.write(folder + name, value)
        if driver:
            (self.root / folder / "driver").symlink_to(f"../../drivers/{driver}")
        return folder

    def adapter(self, state="4: ACTIVE"):
        folder = self.pci("0000:3b:00.0", "0x15b3", "0x101b", "0x020700", "mlx5_core")
        (self.root / folder / "infiniband" / "mlx5_0").mkdir(parents=True)
        port = "sys/class/infiniband/mlx5_0/ports/1/"
        self.write("sys/class/infiniband/mlx5_0/fw_ver", "20.35.1012")
        self.write("sys/class/infiniband/mlx5_0/node_desc", "secrethost HCA-1")
        self.write(port + "state", state)
        self.write(port + "link_layer", "InfiniBand")
        self.write(port + "rate", "200 Gb/sec (4X HDR)")
        self.write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
        self.write("dev/infiniband/uverbs0", "")

    def rdma(self):
        return self.json("--root", self.root, "rdma")["rdma"]

    def test_an_empty_machine_says_why_there_is_nothing(self):
        report = self.json("--root", self.root)
        self.assertEqual(list(report), SECTIONS)
        for section in ("numa", "interfaces", "rdma", "gpus"):
            self.assertEqual(report[section]["items"], [], section)
            self.assertTrue(report[section]["none"], section)
        self.assertIn("ib_core", report["rdma"]["none"])

    def test_an_adapter_with_an_active_port(self):
        self.adapter()
        [item] = self.rdma()["items"]
        self.assertEqual((item["name"], item["firmware"], item["usable"]), ("mlx5_0", "20.35.1012", True))
        [port] = item["parts"]
        self.assertEqual(port["rate"], "200 Gb/sec (4X HDR)")
        self.assertNotIn("secrethost", self.text("--root", self.root))

    def test_a_link_that_is_down(self):
        self.adapter(state="1: DOWN")
        [item] = self.rdma()["items"]
        self.assertFalse(item["usable"])
        self.assertEqual(item["why_not"], "no port is active")

    def test_an_adapter_that_programs_cannot_open(self):
        self.adapter()
        (self.root / "dev/infiniband/uverbs0").unlink()
        self.assertIn("/dev/infiniband/uverbs0: No such file", self.rdma()["items"][0]["why_not"])
        (self.root / "sys/class/infiniband_verbs/uverbs0/ibdev").unlink()
        self.assertIn("ib_uverbs", self.rdma()["items"][0]["why_not"])

    def test_adapters_without_a_driver(self):
        self.pci("0000:00:06.0", "0x1d0f", "0xefa1", "0x020000")
        self.pci("0000:00:07.0", "0x1af4", "0x1041", "0x020000", "virtio-pci")
        [item] = self.rdma()["items"]
        self.assertEqual(item["adapter"], "Amazon EFA")
        self.assertIn("modprobe efa", item["why_not"])

    @WITH_GPUS
    def test_what_lies_between_the_gpus(self):
        os.environ["TUTTI_CUDA_LIBRARY"] = os.environ["TUTTI_FAKE_CUDA"]
        self.addCleanup(os.environ.pop, "TUTTI_CUDA_LIBRARY")
        gpus = self.json("gpus")["gpus"]
        rows = [gpus[f"gpu_{gpu}_links"]["links"] for gpu in range(4)]
        self.assertEqual(rows, [["-", "NVLink", "host", "host"], ["NVLink", "-", "PCIe", "host"],
                                ["host", "PCIe", "-", "NVLink"], ["host", "host", "NVLink", "-"]])
        self.assertRegex(self.text("gpus"), r"gpu 1 links +NVLink +- +PCIe +host +0000:11:00.0 stand-in 1")
        os.environ["FAKE_CUDA_DEVICES"] = "1"
        self.addCleanup(os.environ.pop, "FAKE_CUDA_DEVICES")
        self.assertEqual(self.json("gpus")["gpus"]["gpu_0_links"]["links"], ["-"])

    @WITH_GPUS
    def test_gpus_are_seen_and_why_they_cannot_be_used(self):
        self.pci("0000:17:00.0", "0x10de", "0x2330", "0x030200", "nvidia")
        self.pci("0000:02:00.0", "0x1a03", "0x2000", "0x030000", "ast")  # a server's console
        self.write("proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: \t\t NVIDIA H100")
        os.environ["TUTTI_CUDA_LIBRARY"] = "/nowhere/libcuda.so"
        self.addCleanup(os.environ.pop, "TUTTI_CUDA_LIBRARY")
        [gpu] = self.json("--root", self.root, "gpus")["gpus"]["items"]
        self.assertEqual((gpu["model"], gpu["driver"], gpu["usable"]), ("NVIDIA H100", "nvidia", False))
        self.assertIn("cannot be loaded from /nowhere/libcuda.so", gpu["why_not"])

    @WITH_GPUS
    def test_the_libraries_of_gpus_are_named_where_the_bus_shows_none(self):
        for variable, stand_in in (("TUTTI_CUDA_LIBRARY", "TUTTI_FAKE_CUDA"), ("TUTTI_NCCL_LIBRARY", "TUTTI_FAKE_NCCL")):
            os.environ[variable] = os.environ[stand_in]
            self.addCleanup(os.environ.pop, variable)
        gpus = self.json("--root", self.root, "gpus")["gpus"]
        self.assertEqual(gpus["items"], [])
        self.assertRegex(gpus["cuda_library"], r"^CUDA \d+\.\d+ \(/.*cuda.*\)$")
        self.assertRegex(gpus["nccl_library"], r"^NCCL \d+\.\d+\.\d+ .*/")
        os.environ["TUTTI_CUDA_LIBRARY"] = "/nowhere/libcuda.so"
        self.assertIn("cannot be loaded from /nowhere/libcuda.so", self.text("--root", self.root, "gpus"))

    @unittest.skipIf("TUTTI_FAKE_CUDA" in os.environ, "this build has GPU support")
    def test_a_build_without_gpus_says_so(self):
        self.pci("0000:17:00.0", "0x10de", "0x2330", "0x030200", "nvidia")
        gpus = self.json("--root", self.root, "gpus")["gpus"]
        self.assertIn("no GPU support", gpus["cuda_library"])
        [gpu] = gpus["items"]
        self.assertFalse(gpu["usable"])
        self.assertIn("no GPU support", gpu["why_not"])

    def test_nodes_and_huge_pages(self):
        for node in (0, 1, 10):
            folder = f"sys/devices/system/node/node{node}/"
            self.write(folder + "cpulist", f"{node}-{node + 1}")
            self.write(folder + "meminfo", f"Node {node} MemTotal:       2048 kB")
            self.write(folder + "distance", "10 21 21")
        for name, value in (("nr_hugepages", "8"), ("free_hugepages", "3")):
            self.write("sys/kernel/mm/hugepages/hugepages-2048kB/" + name, value)
        nodes = self.json("--root", self.root, "numa")["numa"]["items"]
        self.assertEqual([node["name"] for node in nodes], ["node0", "node1", "node10"])
        self.assertEqual(nodes[0]["memory_bytes"], 2 * MIB)
        self.assertIn("3 of 8 free, 2048kB each", self.text("--root", self.root, "memory"))

    def test_yama_is_named_where_it_restricts(self):
        self.write("proc/sys/kernel/yama/ptrace_scope", "1")
        self.assertIn("kernel.yama.ptrace_scope = 1", self.text("--root", self.root, "limits"))


if __name__ == "__main__":
    unittest.main()
