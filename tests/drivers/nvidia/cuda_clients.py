"""What happens to CUDA clients on simulated GPUs? Contexts, memory and MPS daemons, and the faults that end them.

Knows no claims and no ways of sharing by name: who is hit follows from which memory a context allocates from and
which process it lives in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman.drivers.nvidia.consequences import CONTAINED, WHOLE_GPU
from dragoman.drivers.nvidia.health import IGNORED
from dragoman.errors import Invalid

PROBE_MIB = 1


@dataclass
class Memory:
    """Memory that contexts share: a GPU's, or an instance's."""

    total_mib: int
    used_mib: int = 0


@dataclass
class Context:
    """One client on one device. limit_mib: what its daemon lets it have; 0 for no limit."""

    client: str
    device: str
    gpu: str
    gi: int | None
    memory: Memory
    daemon: str = ""
    limit_mib: int = 0
    used_mib: int = 0
    ended_by: str = ""

    def allocate(self, mib: int) -> bool:
        """Take memory; False if there is not so much, or the daemon refuses."""
        if self.limit_mib and self.used_mib + mib > self.limit_mib:
            return False
        if self.memory.used_mib + mib > self.memory.total_mib:
            return False
        self.memory.used_mib += mib
        self.used_mib += mib
        return True

    def end(self, reason: str) -> None:
        """The context is gone, its memory free."""
        self.memory.used_mib -= self.used_mib
        self.used_mib = 0
        self.ended_by = self.ended_by or reason


@dataclass
class Clients:
    """All contexts on one machine."""

    contexts: list[Context] = field(default_factory=list)
    _memories: dict[tuple[str, int | None], Memory] = field(default_factory=dict)

    def start(
        self,
        client: str,
        device: str,
        gpu: str,
        gi: int | None,
        total_mib: int,
        *,
        daemon: str = "",
        limit_mib: int = 0,
    ) -> Context:
        """A client opens a device whose memory is total_mib; the same (gpu, gi) is the same memory."""
        memory = self._memories.setdefault((gpu, gi), Memory(total_mib))
        made = Context(client, device, gpu, gi, memory, daemon, limit_mib)
        self.contexts.append(made)
        return made

    @property
    def alive(self) -> list[Context]:
        """Contexts that have not ended."""
        return [context for context in self.contexts if not context.ended_by]

    def xid(self, number: int, gpu: str, gi: int | None = None, cause: str = "") -> list[Context]:
        """An XID happens; the contexts that it ends."""
        reason = f"XID {number}"
        for context in self.alive:
            if context.gpu != gpu:
                continue
            if number in WHOLE_GPU:
                context.end(reason)
            elif gi is not None and context.gi != gi:
                continue
            elif number not in IGNORED | CONTAINED:
                context.end(reason)
            elif context.client == cause:
                context.end(reason)
                self._daemon_fails(context, reason)
        return [context for context in self.contexts if context.ended_by == reason]

    def _daemon_fails(self, broken: Context, reason: str) -> None:
        """Clients of an MPS daemon share its server's address space: one fault ends it, and so all of them."""
        if not broken.daemon:
            return
        for context in self.alive:
            if context.daemon == broken.daemon and (context.gpu, context.gi) == (broken.gpu, broken.gi):
                context.end(reason)

    def overrun(self, client: str, device: str) -> list[Context]:
        """A client takes all the memory that it gets on its device; the contexts that then fail to allocate.

        Raises Invalid for a client that is not there.
        """
        greedy = next((c for c in self.alive if (c.client, c.device) == (client, device)), None)
        if greedy is None:
            raise Invalid(f"client {client}", f"does not use {device}")
        room = greedy.memory.total_mib - greedy.memory.used_mib
        allowed = greedy.limit_mib - greedy.used_mib if greedy.limit_mib else room
        greedy.allocate(min(room, allowed))
        failed = [context for context in self.alive if not context.allocate(PROBE_MIB)]
        for context in failed:
            context.ended_by = "out of memory"
        for context in failed:
            context.end("out of memory")
        return failed
