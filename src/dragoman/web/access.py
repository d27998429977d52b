"""Who may use the page? The browser that opened the address with its one-time token, and only pages of our own.

The page is on loopback, where every user of the machine and every site in the browser can send requests. So: a token
that works once and becomes a cookie; the Host header must name loopback (DNS rebinding); requests that are more than
reading must come from our origin.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from dragoman.runtime.entropy import Entropy

TOKEN_BYTES = 24
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageAccess:
    """The tokens of one server on one port."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._session = entropy.token(TOKEN_BYTES)
        self._once: str | None = None
        self.port = 0

    @property
    def cookie(self) -> str:
        """The cookie's name; ports do not separate cookies, names do."""
        return f"dragoman-{self.port}"

    def address(self) -> str:
        """A new address that works once; one given before works no longer."""
        self._once = self._entropy.token(TOKEN_BYTES)
        return f"http://127.0.0.1:{self.port}/?token={self._once}"

    def exchange(self, token: str) -> str | None:
        """The cookie's value for a token that was not used yet; None for any other."""
        if self._once is None or not hmac.compare_digest(token.encode(), self._once.encode()):
            return None
        self._once = None
        return self._session

    def knows(self, cookies: Mapping[str, str]) -> bool:
        """Whether the request has our cookie."""
        return hmac.compare_digest(cookies.get(self.cookie, "").encode(), self._session.encode())

    def is_host(self, host: str) -> bool:
        """Whether a Host header names this server on loopback."""
        return host in {f"127.0.0.1:{self.port}", f"localhost:{self.port}", f"[::1]:{self.port}"}

    def is_ours(self, host: str, headers: Mapping[str, str]) -> bool:
        """Whether a request that does more than read comes from a page of this very host."""
        site = headers.get("Sec-Fetch-Site", "same-origin")
        return headers.get("Origin") == f"http://{host}" and site == "same-origin"
