"""Shards given out to the workers of an engine, again if a worker is lost, until all are done."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, wait

from bt_bench.base import one_line
from bt_bench.base.errors import UsageError, counted
from bt_bench.runs.cluster.engine import Engine, ShardTask
from bt_bench.runs.cluster.ledger import Ledger
from bt_bench.runs.cluster.task import Ended, succeeded
from bt_bench.runs.progress import Progress

_POLL_S = 2.0
_SHOWN = 5  # shards that a message names


def run_shards(ledger: Ledger, engine: Engine, attempts: int, progress: Progress) -> None:
    """Have all missing shards of a sweep measured.

    A shard that failed is given out again, behind the others. If as many commands have failed as
    one shard has attempts, before any shard was done, the rest would fail too, and is not tried.

    Args:
        ledger: of the sweep; gets a line per shard.
        engine: has the workers.
        attempts: how often one shard is tried.
        progress: receives the progress.

    Raises:
        UsageError: at the end, if shards are not done; with the last lines of one.
    """
    dispatch = _Dispatch(ledger, engine, attempts, progress)
    progress.start(ledger.plan.shards, ledger.done, "shards")
    for task in ledger.missing():
        dispatch.submit(task)
    dispatch.tell()
    while dispatch.running:
        ended, _ = wait(dispatch.running, _POLL_S, FIRST_COMPLETED)
        for future in ended:
            dispatch.end(future)
        dispatch.tell()
    dispatch.raise_if_failed()


class _Dispatch:
    def __init__(self, ledger: Ledger, engine: Engine, attempts: int, progress: Progress) -> None:
        self._ledger = ledger
        self._engine = engine
        self._attempts = attempts
        self._progress = progress
        self._tried: Counter[int] = Counter()
        self._failed: dict[int, str] = {}
        self._in_vain = 0  # commands that failed; a lost worker says nothing of the others
        self._told = ""
        self.running: dict[Future[Ended], ShardTask] = {}

    def submit(self, task: ShardTask) -> None:
        """Give out a shard."""
        self._tried[task.index] += 1
        self.running[self._engine.submit(task)] = task

    def end(self, future: Future[Ended]) -> None:
        """Note that a shard is done, or give it out again."""
        task = self.running.pop(future)
        error = future.exception()
        if error is not None:
            self._again(task, f"its worker was lost: {type(error).__name__}: {error}")
            return
        ended = future.result()
        if succeeded(ended):
            self._ledger.add(task.index, ended)
            self._progress.advance()
            return
        self._in_vain += 1
        at = f"{ended['host']} {ended['device']}".strip()
        code = "was not begun" if ended["code"] is None else f"ended with {ended['code']}"
        self._again(task, f"{code} on {at}: {ended['tail']}")

    def _again(self, task: ShardTask, why: str) -> None:
        tried = self._tried[task.index]
        in_vain = not self._ledger.done and self._in_vain >= self._attempts
        if tried >= self._attempts or in_vain:
            self._failed[task.index] = why
            if in_vain:
                self._give_up()
            return
        last = one_line(why.strip().rpartition("\n")[2])
        name = f"shard {task.index}/{self._ledger.plan.shards}"
        self._progress.say(f"{name}: attempt {tried} of {self._attempts} failed, again: {last}")
        self.submit(task)

    def _give_up(self) -> None:
        for future in [future for future in self.running if future.cancel()]:
            self._failed.setdefault(self.running.pop(future).index, "not tried")

    def tell(self) -> None:
        """Show how many shards are running and have failed."""
        begun = min(self._engine.num_running(), len(self.running))
        text = f"{begun} running, {len(self.running) - begun} waiting, {len(self._failed)} failed"
        if text != self._told:
            self._told = text
            self._progress.phase(text)

    def raise_if_failed(self) -> None:
        """Raise if a shard is not done."""
        if not self._failed:
            return
        numbers = sorted(self._failed)
        shown = ", ".join(map(str, numbers[:_SHOWN])) + " …" * (len(numbers) > _SHOWN)
        tried = [index for index in numbers if self._failed[index] != "not tried"]
        index = tried[0]
        raise UsageError(
            f"{counted(len(numbers), 'shard')} of {self._ledger.plan.shards} not done ({shown}); "
            f"shard {index} after {counted(self._tried[index], 'attempt')}: {self._failed[index]}\n"
            f"Remove the cause, and continue with --resume {self._ledger.folder}"
        )
