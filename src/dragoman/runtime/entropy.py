"""Where does chance come from? The only place that draws: uids, name suffixes, tokens, jitter.

With a seed every draw repeats (simulation); without one uids and tokens come from the operating system.
It never decides anything.
"""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import MutableSequence, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes draws generated names from: no vowels, nothing that reads like another."""


class Entropy:
    """A source of chance; give it a seed and it repeats."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self._random = random.Random(seed)  # noqa: S311 - names and jitter, no secrets

    def uuid4(self) -> str:
        """A random UUID as text."""
        if self.seed is None:
            return str(uuid.uuid4())
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def suffix(self, length: int = 5) -> str:
        """Random characters for a generated name."""
        return "".join(self._random.choices(SUFFIX_ALPHABET, k=length))

    def token(self, size: int = 24) -> str:
        """A URL-safe secret of `size` random bytes; a seeded one is for tests and no secret."""
        if self.seed is None:
            return secrets.token_urlsafe(size)
        return self._random.randbytes(size).hex()

    def jitter(self, seconds: float, factor: float = 0.5) -> float:
        """`seconds` made longer by up to `factor` of it."""
        return seconds * (1.0 + self._random.random() * factor)

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self._random.random() < probability

    def between(self, low: float, high: float) -> float:
        """A number between the two."""
        return self._random.uniform(low, high)

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return self._random.choice(choices)

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Bring into a random order, in place."""
        self._random.shuffle(items)

    def fork(self) -> Entropy:
        """An independent source that repeats if this one does."""
        return Entropy(None if self.seed is None else self._random.getrandbits(64))
