"""What does a terminal do between a keyboard and a program? Echo, erase, lines, Ctrl-C and Ctrl-D; line ends of the
output."""

from __future__ import annotations

from collections.abc import Callable, Iterator

INTERRUPT, END, ERASE, WORD, KILL = 0x03, 0x04, (0x7F, 0x08), 0x17, 0x15


class Terminal:
    """The line discipline of one session."""

    def __init__(self, output: Callable[[int, bytes], None]) -> None:
        self._output = output
        self._line = bytearray()

    def output(self, number: int, data: bytes) -> None:
        """What the program writes."""
        self._output(1, data.replace(b"\n", b"\r\n"))

    def typed(self, data: bytes) -> Iterator[bytes | None]:
        """Whole lines for the program; b"\\x03" for an interrupt, None for the end of input."""
        for byte in data:
            if byte in (0x0D, 0x0A):
                self._output(1, b"\r\n")
                line, self._line = bytes(self._line) + b"\n", bytearray()
                yield line
            elif byte in ERASE:
                if self._line:
                    while self._line and self._line.pop() & 0xC0 == 0x80:
                        pass  # a character of UTF-8 goes whole
                    self._output(1, b"\b \b")
            elif byte in (WORD, KILL):
                self._output(1, b"\b \b" * len(self._line))
                self._line.clear()
            elif byte == INTERRUPT:
                self._output(1, b"^C\r\n")
                self._line.clear()
                yield b"\x03"
            elif byte == END:
                if not self._line:
                    yield None
            elif byte >= 0x20 or byte == 0x09:
                self._line.append(byte)
                self._output(1, bytes([byte]))
