"""A Slurm of a test's own: munged, slurmctld and a slurmd for each node, with everything removed at the end."""
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "sinfo", "squeue", "scancel", "scontrol")
READY_S = 30
END_S = 10
CONFIGURATION = """\
ClusterName={cluster}
SlurmctldHost={controller}({addresses[0]})
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
MailProg=/bin/true
SlurmdParameters=config_overrides
TaskProlog={folder}/prolog
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
TmpFS={folder}/tmp-%n
ReturnToService=2
KillWait=1
InactiveLimit=0
SlurmdTimeout=0
"""


def search_path():
    """Debian has the daemons where only root looks."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def why_not():
    """Why there can be none here; "" if there can."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=search_path())]
    return "there is no " + ", ".join(missing) if missing else ""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    """One node on loopback, or with hosts (hosts.Hosts) one node on each: node0, node1, … In the files of those hosts
    these names have addresses."""

    def __init__(self, hosts=None):
        self.hosts = hosts
        count = len(hosts.names) if hosts else 1
        self.nodes = ["node%d" % i for i in range(count)]
        self.addresses = [hosts.address(i) for i in range(count)] if hosts else ["127.0.0.1"]
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.daemons = {}
        self.held = tempfile.TemporaryDirectory(prefix="tutti-slurm-", dir="/tmp")  # short: it has sockets
        self.folder = pathlib.Path(self.held.name)
        self.env = {**os.environ, "PATH": search_path(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        try:
            self.configure()
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *error):
        self.end()

    def configure(self):
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        controller_port, node_port = free_ports(2)
        lines = [CONFIGURATION.format(cluster="tutti" + secrets.token_hex(3), nodes=self.nodes, folder=self.folder,
                                      addresses=self.addresses, controller_port=controller_port,
                                      controller=self.nodes[0] if self.hosts else socket.gethostname(),
                                      user=self.user)]
        for name, address in zip(self.nodes, self.addresses):
            (self.folder / ("tmp-" + name)).mkdir()
            lines.append("NodeName=%s NodeHostname=%s NodeAddr=%s Port=%d CPUs=8 State=UNKNOWN\n"
                         % (name, name if self.hosts else socket.gethostname(), address, node_port))
        lines.append("PartitionName=all Nodes=ALL Default=YES State=UP\n")
        (self.folder / "slurm.conf").write_text("".join(lines))
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            "%s %s\n" % (address, name) for name, address in zip(self.nodes, self.addresses)))
        # One kernel runs all of these hosts: this tells them apart.
        prolog = self.folder / "prolog"
        prolog.write_text('#!/bin/sh\necho "export TUTTI_HOST_ID=$SLURMD_NODENAME"\n' if self.hosts else "#!/bin/sh\n")
        prolog.chmod(0o755)

    def on_node(self, node, *command):
        """The command as a process of that node's host: with its network, its name, and its file of hosts."""
        if not self.hosts:
            return command
        script = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
        return ("nsenter", "--net=/run/netns/" + self.hosts.names[node], "unshare", "--uts", "--mount", "--ipc", "sh", "-c",
                script, "sh", str(self.folder / "hosts"), self.nodes[node], *command)

    def start_daemon(self, name, node, *command):
        with open(self.folder / (name + ".out"), "w") as output:
            self.daemons[name] = subprocess.Popen(self.on_node(node, *command), env=self.env, stdout=output,
                                                  stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def begin(self):
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid",
                 "log-file": "munged.log", "seed-file": "munge.seed"}
        self.start_daemon("munged", 0, "munged", "--foreground", "--force", "--num-threads=2",
                          *("--%s=%s" % (option, self.folder / file) for option, file in files.items()))
        self.wait_for("munged", (self.folder / "munge.socket").exists)
        self.start_daemon("slurmctld", 0, "slurmctld", "-D", "-i")
        for i, name in enumerate(self.nodes):
            self.start_daemon("slurmd-" + name, i, "slurmd", "-D", "-N", name)
        self.wait_for("slurmctld", lambda: self.idle_nodes() == len(self.nodes))

    def tell(self, *command):
        """Returns the output of one of Slurm's own programs."""
        return subprocess.run(self.on_node(0, *command), env=self.env, text=True, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=READY_S, check=False).stdout

    def idle_nodes(self):
        return self.tell("sinfo", "--noheader", "--Node", "--format=%T").split().count("idle")

    def wait_for(self, name, ready):
        deadline = time.monotonic() + READY_S
        while not ready():
            gone = [each for each, process in self.daemons.items() if process.poll() is not None]
            if gone or time.monotonic() > deadline:
                raise RuntimeError("%s is not ready; ended: %s\n%s" % (name, gone, self.said()))
            time.sleep(0.05)

    def said(self):
        return "\n".join("%s:\n%s" % (file.name, file.read_text(errors="replace")[-3000:])
                         for file in sorted(self.folder.glob("*.out")))

    def end(self):
        if self.daemons.get("slurmctld"):
            self.end_jobs()
        for process in reversed(self.daemons.values()):
            process.terminate()
        for process in self.daemons.values():
            try:
                process.wait(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in self.hosts.names if self.hosts else ():
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in listed.stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.held.cleanup()

    def end_jobs(self):
        """Their processes are no children of the daemons."""
        self.tell("scancel", "--signal=KILL", "--full", "--user", self.user)
        self.tell("scancel", "--user", self.user)
        deadline = time.monotonic() + END_S
        while self.tell("squeue", "--noheader") and time.monotonic() < deadline:
            time.sleep(0.1)
