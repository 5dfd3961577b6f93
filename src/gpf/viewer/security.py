"""Who may use the page: requests with its token, from a page of its own, under a host name of its own.

A page elsewhere cannot read anything: its requests carry another Origin. One that points its own host name to this
machine (DNS rebinding) is refused by the Host that its requests carry. The token is in the address that `gpf view`
prints, and then in a cookie that no other site can send.
"""

import ipaddress
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of every response: nothing is loaded from elsewhere, and no script lies in a page."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
OPEN_PATHS = "/static/"
"""Below it lie the page's own files, which need no token."""


@dataclass(frozen=True)
class Access:
    """What a request must have."""

    token: str
    hosts: tuple[str, ...] = LOOPBACK
    """Host names that the server answers to; 0.0.0.0 and :: stand for every IP address."""
    cookie: str = field(init=False)
    """Name of the cookie with the token; servers on other ports of this machine have other names."""

    def __post_init__(self) -> None:
        """Derive the cookie's name."""
        object.__setattr__(self, "cookie", f"gpf-{sha256(self.token.encode()).hexdigest()[:8]}")

    def refusal(self, path: str, query: str, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence with which a request is refused; None for one that is answered."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return 403, f"host {host[:80]!r} is not the host of this page"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, f"origin {origin[:80]!r} is another site; only pages of this server may ask it"
        if path.startswith(OPEN_PATHS) or self.is_given(query) or self._has_cookie(headers):
            return None
        return 401, "the token is missing or wrong; open the address that gpf view printed"

    def is_given(self, query: str) -> bool:
        """Whether a query string has the right token."""
        return any(self._is_token(one) for one in parse_qs(query).get("token", []))

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return held is not None and self._is_token(held.value)

    def _is_ours(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname or "", parts.port  # a port that is no number raises ValueError
        except ValueError:
            return False
        if name in self.hosts:
            return True
        return any(one in self.hosts for one in EVERY_ADDRESS) and _is_address(name)


def _is_address(name: str) -> bool:
    """Whether a host is an IP address, which no DNS server can point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Middleware that refuses what `Access` refuses, before anything else sees it, and adds `HEADERS`."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on to the application."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        refusal = self.access.refusal(scope["path"], query, Headers(scope=scope))
        if refusal is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})  # before it is accepted: HTTP 403
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if refusal is None and self.access.is_given(query):
                    headers.append("set-cookie", f"{self.access.cookie}={self.access.token}; {_COOKIE}")
            await send(message)

        answer = self.app if refusal is None else PlainTextResponse(refusal[1] + "\n", refusal[0])
        await answer(scope, receive, send_with_headers)


_COOKIE = "HttpOnly; SameSite=Strict; Path=/"
