"""Hosts of a program's own, for test/hosts and bench/hosts: network namespaces on one bridge, or far apart; everything
is removed at the end."""
import os
import secrets
import subprocess
import tempfile
import time

STORE_PORT = 29871


def run(*command, **how):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, **how).stdout


def why_not():
    """Why there can be none here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces are root's to make"
    name = "tutti%dx" % os.getpid()
    try:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        return ""
    except FileNotFoundError:
        return "there is no 'ip' (iproute2)"
    except subprocess.CalledProcessError as error:
        return error.stderr.strip()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


class Hosts:
    """count hosts: number i has the address address(i), of version 4, 6, or "link": link-local, and no other. A
    namespace more holds the bridge. With dead_end they have another interface, up and first in the list, of an address
    that no other host has a way to."""

    device = "net0"  # that leads to the others

    def __init__(self, count, version=4, dead_end=False):
        self.version = version
        self.dead_end = dead_end
        stem = "tutti%d%s" % (os.getpid(), secrets.token_hex(2))
        self.switch = stem + "s"
        self.names = ["%sh%d" % (stem, i) for i in range(count)]
        self.processes = []

    def address(self, host):
        return {4: "10.213.78.%d", 6: "fd21:3:78::%d", "link": "fe80::78:%d"}[self.version] % (host + 1)

    def url(self):
        return "tcp://%s:%d" % (self.address(0) if self.version == 4 else "[%s]" % self.address(0), STORE_PORT)

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *error):
        self.remove()

    def make(self):
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            if self.dead_end:
                self.add_dead_end(i)
            run("ip", "link", "add", "net0", "netns", name, "type", "veth", "peer", "port%d" % i, "netns", self.switch)
            run("ip", "-n", self.switch, "link", "set", "port%d" % i, "master", "bridge", "up")
            mask = ["/24"] if self.version == 4 else ["/64", "nodad"]
            if self.version == "link":  # the kernel's own is checked for duplicates first
                run("ip", "-n", name, "link", "set", "net0", "addrgenmode", "none")
            run("ip", "-n", name, "address", "add", self.address(i) + mask[0], "dev", "net0", *mask[1:])
            for device in ("lo", "net0"):
                run("ip", "-n", name, "link", "set", device, "up")
        deadline = time.monotonic() + 60
        while any("state UP" not in run("ip", "-n", name, "link", "show", "net0") for name in self.names):
            assert time.monotonic() < deadline, "the links do not come up"
            time.sleep(0.02)

    def remove(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.output.close()
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def limit(self, rate, both_ways=False):
        """Limits the rate of the bytes that each host sends, and with both_ways of those that it receives."""
        links = [(name, "net0") for name in self.names]
        if both_ways:
            links += [(self.switch, "port%d" % i) for i in range(len(self.names))]
        for name, device in links:
            run("tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "256kb",
                "latency", "50ms")

    def cable(self, host, state):
        """Plugs a host's in ("up") or pulls it ("down"), at the switch: the host sees no more than silence."""
        run("ip", "-n", self.switch, "link", "set", "port%d" % host, "nomaster" if state == "down" else "up",
            *(() if state == "down" else ("master", "bridge")))

    def cut(self, host, way):
        """Drops all that is on its way "to" or "from" a host; the other direction works on."""
        name, device = (self.switch, "port%d" % host) if way == "to" else (self.names[host], "net0")
        run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", "pfifo", "limit", "0")

    def mend(self, host, way):
        """Undoes a cut."""
        name, device = (self.switch, "port%d" % host) if way == "to" else (self.names[host], "net0")
        run("tc", "-n", name, "qdisc", "delete", "dev", device, "root")

    def add_dead_end(self, host):
        name = self.names[host]
        run("ip", "-n", name, "link", "add", "aside0", "type", "veth", "peer", "name", "aside1")
        run("ip", "-n", name, "address", "add", "10.213.%d.1/24" % (100 + host), "dev", "aside0")
        for device in ("aside0", "aside1"):
            run("ip", "-n", name, "link", "set", device, "up")

    def start(self, layout, *command, containers=False, env=None):
        """A rank for each letter of layout, on the host that it names ("a" is number 0). Hosts are told apart as
        machines are, or else look like containers of one machine."""
        secret = secrets.token_hex(16)
        started = []
        for rank, letter in enumerate(layout):
            name = self.names[ord(letter) - ord("a")]
            settings = {**os.environ, "TUTTI_RANK": str(rank), "TUTTI_SIZE": str(len(layout)), "TUTTI_SECRET": secret,
                        "TUTTI_STORE": self.url(), "TUTTI_TIMEOUT_MS": "60000", **(env or {})}
            apart = ("unshare", "--ipc") if containers else ()
            if not containers:
                settings["TUTTI_HOST_ID"] = name
            output = tempfile.TemporaryFile("w+")
            process = subprocess.Popen(["ip", "netns", "exec", name, *apart, *command], env=settings, text=True,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            process.output = output
            started.append(process)
        self.processes += started
        return started


class FarHosts(Hosts):
    """Joined by bench/network's switch instead: every frame takes half of the round trip, and the rate is of each link
    both ways."""
    device = "far0"

    def __init__(self, count, program, round_trip_ms, rate_mbit=1000):
        super().__init__(count)
        self.command = [program, "--device", self.device, "--rate-mbit", str(rate_mbit), "--delay-ms",
                        str(round_trip_ms / 2), *self.names]
        self.joining = None

    def make(self):
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        self.joining = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.joining.stdout.readline() != "ready\n":
            raise OSError(self.joining.stderr.read().strip())
        for i, name in enumerate(self.names):
            run("ip", "-n", name, "address", "add", self.address(i) + "/24", "dev", self.device)
            run("ip", "-n", name, "link", "set", self.device, "mtu", "9000", "txqueuelen", "10000", "up")

    def remove(self):
        if self.joining:
            self.joining.terminate()
            self.joining.communicate()
        super().remove()


def said(process):
    """Returns the output of a process so far."""
    # Another open file: the process writes at the position of its own.
    with open(f"/proc/self/fd/{process.output.fileno()}", encoding="utf-8", errors="replace") as output:
        return output.read()


def ends(processes, patience_s=120):
    """[(exit code, what it said)] of each."""
    deadline = time.monotonic() + patience_s
    found = []
    for process in processes:
        code = process.wait(timeout=max(0.1, deadline - time.monotonic()))
        process.output.seek(0)
        found.append((code, process.output.read()))
    return found
