"""A real Slurm of one node on the loopback address, whose GPUs are the null device.

It needs Debian's `slurm-wlm` and `munge`, but neither systemd, root nor an installed configuration.
To try commands by hand:

    python tests/support/slurm.py 'sbatch --gpus=1 --wrap env; sleep 3; squeue'
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
_SBIN = "/usr/sbin"  # not in the path of users on Debian

# Slurm's waits are for thousands of nodes; this one has one, and a test waits for it.
_CONF = """\
ClusterName=onenode
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoAddrCache,NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=2
CompleteWait=0
MinJobAge=300
RebootProgram=/bin/true
NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=gpus Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def missing_programs() -> list[str]:
    """Programs of Slurm and munge that are not installed."""
    return [name for name in PROGRAMS if _found(name) is None]


@dataclass(frozen=True)
class Slurm:
    """A running Slurm.

    Args:
        folder: its files: configuration, logs, state.
        environment: variables with which Slurm's commands, and code that calls them, reach it.
    """

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Runs a command of Slurm, and returns what it printed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        """Submits a shell script as a job, and returns the job's number."""
        done = subprocess.run(
            ["sbatch", "--parsable", f"--chdir={self.folder}", *options],
            env=self.environment,
            input=f"#!/bin/sh\n{script}\n",
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"sbatch ended with {done.returncode}: {done.stderr}")
        return int(done.stdout)

    def job(self, number: int) -> dict[str, str]:
        """Fields of a job, by name, as `scontrol show job` prints them."""
        fields = self.run("scontrol", "--oneliner", "show", "job", str(number)).split()
        return dict(field.split("=", 1) for field in fields if "=" in field)

    def jobs(self) -> list[int]:
        """Jobs that are waiting, running or being ended."""
        return [int(line) for line in self.run("squeue", "--noheader", "--format=%A").splitlines()]

    def processes(self, job: int) -> list[int]:
        """Processes of a running job."""
        return [pid for pid, of in _jobs_of_processes(self.folder) if of == str(job)]


@contextmanager
def slurm(gpus: int = 2, cpus: int = 8) -> Iterator[Slurm]:
    """Start munge, Slurm's controller and a node, in a new temporary folder; end them all.

    Args:
        gpus: number of GPUs of the node.
        cpus: number of processors of the node, which may be more than there are.

    Raises:
        RuntimeError: if a program is missing, or does not come up; with the ends of the logs.
    """
    if missing := missing_programs():
        raise RuntimeError(f"{', '.join(missing)} not found; install Debian's slurm-wlm and munge")
    with ExitStack() as stack:
        # Not pytest's: the path of a socket has at most 107 characters.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        folder.chmod(0o755)  # or munge refuses to keep its socket there
        environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ.get('PATH', os.defpath)}:{_SBIN}",
        }
        here = Slurm(folder, environment)
        _configure(folder, gpus, cpus)
        for command, is_up in _daemons(here):
            process = _start(command, here)
            stack.callback(_end, process)
            _wait(is_up, process, here)
        stack.callback(_end_jobs, here)
        yield here


def _configure(folder: Path, gpus: int, cpus: int) -> None:
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    lines = []
    for number in range(gpus):
        (folder / f"gpu{number}").symlink_to("/dev/null")  # Slurm asks for a device
        lines.append(f"NodeName=node Name=gpu File={folder}/gpu{number}\n")
    (folder / "gres.conf").write_text("".join(lines))
    controller_port, node_port = _free_ports(2)
    text = _CONF.format(
        host=socket.gethostname().split(".")[0],
        user=_user(),
        folder=folder,
        cpus=cpus,
        gpus=gpus,
        controller_port=controller_port,
        node_port=node_port,
    )
    (folder / "slurm.conf").write_text(text)


def _daemons(here: Slurm) -> list[tuple[list[str], Callable[[], bool]]]:
    """Commands in the order of their starts, each with a function that says whether it is up."""
    folder, conf = here.folder, str(here.folder / "slurm.conf")
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
    munge = [f"--{option}={folder}/munge.{name}" for option, name in names.items()]
    return [
        (
            # By force, since a temporary folder is writable by all.
            ["munged", "--foreground", "--force", "--num-threads=2", *munge],
            (folder / "munge.socket").exists,
        ),
        (
            ["slurmctld", "-D", "-f", conf],
            lambda: _answers(here, "scontrol", "ping").endswith("UP"),
        ),
        (
            ["slurmd", "-D", "-N", "node", "-f", conf],
            lambda: _answers(here, "sinfo", "--noheader", "--format=%T") == "idle",
        ),
    ]


def _answers(here: Slurm, *command: str) -> str:
    try:
        return here.run(*command)
    except RuntimeError as error:
        return str(error)


def _start(command: list[str], here: Slurm) -> subprocess.Popen[bytes]:
    program = _found(command[0])
    assert program is not None
    with (here.folder / f"{command[0]}.out").open("wb") as out:
        return subprocess.Popen(
            [program, *command[1:]],
            env=here.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # what a terminal sends to a test is not for them
        )


def _wait(is_up: Callable[[], bool], process: subprocess.Popen[bytes], here: Slurm) -> None:
    deadline = time.monotonic() + 60
    while not is_up():
        if process.poll() is not None or time.monotonic() > deadline:
            name = Path(str(process.args[0])).name  # type: ignore[index]
            texts = [path.read_text(errors="replace") for path in here.folder.glob(f"{name}.*o*")]
            end = "\n".join("\n".join(texts).splitlines()[-30:])
            raise RuntimeError(f"{name} did not come up (exit code {process.poll()}):\n{end}")
        time.sleep(0.05)


def _end_jobs(here: Slurm) -> None:
    """End all jobs, and the processes that they have left."""
    for job in here.jobs():
        _answers(here, "scancel", str(job))
    deadline = time.monotonic() + 20
    while here.jobs() and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid, _ in _jobs_of_processes(here.folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _jobs_of_processes(folder: Path) -> Iterator[tuple[int, str]]:
    """Processes of jobs of this Slurm, each with the number of its job."""
    mine = f"SLURM_CONF={folder}/slurm.conf"
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_text(errors="replace").split("\0")
        except OSError:  # it has ended, or is another user's
            continue
        if mine in variables:
            for variable in variables:
                if variable.startswith("SLURM_JOB_ID="):
                    yield int(path.name), variable.removeprefix("SLURM_JOB_ID=")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_SBIN)


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


if __name__ == "__main__":
    with slurm() as running:
        code = subprocess.run(["sh", "-c", sys.argv[1]], env=running.environment).returncode
    sys.exit(code)
