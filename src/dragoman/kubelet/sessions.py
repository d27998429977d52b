"""How do exec, attach and port-forward reach a container of this node? The node's part of `apiserver.sessions`.

Commands run beside the container's own, in what it sees. A simulated container listens on no port, which is said. It
decides nothing about containers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.apiserver.sessions import EndListener, OutputListener, PortConnection, Session
from dragoman.errors import NotFound
from dragoman.kubelet.pod import KubeletPod
from dragoman.kubelet.programs import Running
from dragoman.kubelet.runtime import SimulatedRuntime
from dragoman.kubelet.shell.terminal import Terminal
from dragoman.runtime.relays import RELAYS

INTERRUPT = 2


class NodeSessions:
    """The sessions of one pod."""

    def __init__(self, runtime: SimulatedRuntime, pod: KubeletPod) -> None:
        self.runtime = runtime
        self.pod = pod

    def check(self, container: str) -> None:
        """Raises NotFound where the container does not run."""
        box = self.runtime.sandbox(self.pod.uid)
        run = box.current.get(container) if box else None
        if run is None or not run.is_running(self.runtime.clock.now()):
            raise NotFound(f'container "{container}" is not running')

    def execute(
        self,
        container: str,
        command: tuple[str, ...],
        output: OutputListener,
        ended: EndListener,
        *,
        stdin: bool,
        tty: bool,
    ) -> Session:
        """Run a command beside the container's own. Raises NotFound."""
        terminal = Terminal(output) if tty else None
        running = self.runtime.execute(
            self.pod.uid,
            container,
            command,
            terminal.output if terminal else output,
            ended,
            has_input=stdin,
            env={"TERM": "xterm"} if tty else None,
        )
        return _Executed(running, terminal)

    def attach(self, container: str, output: OutputListener, ended: EndListener, *, stdin: bool, tty: bool) -> Session:
        """Connect to the container's own command. Raises NotFound."""
        everybody = (*self.pod.spec.containers, *self.pod.spec.init_containers, *self.pod.spec.ephemeral_containers)
        found = next((c for c in everybody if c.name == container), None)
        self.check(container)
        assert found is not None, "the API server asks for containers of the pod only"
        terminal = Terminal(output) if tty and found.tty else None
        leave = self.runtime.listen(self.pod.uid, container, terminal.output if terminal else output, ended)
        own = self.runtime.command(self.pod.uid, container) if stdin and found.stdin else None
        return _Attached(own, terminal, leave, once=found.stdin_once)

    async def connect(self, port: int) -> PortConnection:
        """Of a pod whose containers are processes here; no simulated container listens. Raises NotFound."""
        box = self.runtime.sandbox(self.pod.uid)
        if box is not None and any(run.local for run in box.current.values()):
            try:
                return await asyncio.open_connection(*RELAYS.reached(box.ip, port))
            except OSError as error:
                name = self.pod.metadata.name
                raise NotFound(f"nothing listens on port {port} of pod {name}: {error.strerror or error}") from None
        raise NotFound(
            f"nothing listens on port {port} of pod {self.pod.metadata.name}: its containers are simulated "
            "(`up --runtime process` runs programs)"
        )


class _Executed:
    """A command that goes with whoever asked for it."""

    def __init__(self, running: Running, terminal: Terminal | None) -> None:
        self._running = running
        self._terminal = terminal

    def feed(self, data: bytes) -> None:
        """Input, through the terminal if there is one."""
        if self._terminal is None:
            self._running.feed(data)
            return
        for line in self._terminal.typed(data):
            if line is None:
                self._running.end_input()
            elif line == b"\x03":
                if not self._running.signal(INTERRUPT):
                    self._running.interrupt()
            else:
                self._running.feed(line)

    def end_input(self) -> None:
        """No more input."""
        self._running.end_input()

    def resize(self, columns: int, rows: int) -> None:
        """Pass it on."""
        self._running.resize(columns, rows)

    def close(self) -> None:
        """End the command."""
        self._running.close()


class _Attached(_Executed):
    """A container's own command, which outlives whoever looks at it."""

    def __init__(
        self, running: Running | None, terminal: Terminal | None, leave: Callable[[], None], *, once: bool
    ) -> None:
        self._own = running
        self._terminal = terminal
        self._leave = leave
        self._once = once
        if running is not None:
            super().__init__(running, terminal)

    def feed(self, data: bytes) -> None:
        """Input of a container that takes one."""
        if self._own is not None:
            super().feed(data)

    def end_input(self) -> None:
        """The end of the input, for containers that take one only once."""
        if self._own is not None and self._once:
            self._own.end_input()

    def resize(self, columns: int, rows: int) -> None:
        """Pass it on."""
        if self._own is not None:
            self._own.resize(columns, rows)

    def close(self) -> None:
        """Look no longer."""
        self._leave()
        self.end_input()
