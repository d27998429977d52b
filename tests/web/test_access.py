"""Who can reach the page? Only the browser that opened the address, on loopback, and pages of our own."""

from __future__ import annotations

import asyncio

from tests.web.page import page_of


def test_a_token_works_once_and_becomes_a_strict_cookie(cluster_file: str) -> None:
    async def run() -> None:
        async with page_of(cluster_file) as browser:
            address = browser.page.access.address()
            async with browser.session.get(f"{browser.base}/api/state") as answer:
                assert answer.status == 401
            async with browser.session.get(address) as answer:
                assert answer.status == 200
                cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert (await browser.get("state"))["status"] == 200
            browser.session.cookie_jar.clear()
            async with browser.session.get(address) as answer:
                assert answer.status == 401
            assert len(browser.said) == 1
            assert "/?token=" in browser.said[0]
            async with browser.session.get(browser.said[0].rpartition(" ")[2]) as answer:
                assert answer.status == 200

    asyncio.run(run())


def test_other_hosts_and_origins_are_refused(cluster_file: str) -> None:
    async def run() -> None:
        async with page_of(cluster_file) as browser:
            await browser.opened()
            url = f"{browser.base}/api/whatif"
            asked = {"removePod": "lab/first"}
            for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
                async with browser.session.post(url, json=asked, headers=headers) as answer:
                    assert answer.status == 403, headers
            cross = {"Origin": browser.base, "Sec-Fetch-Site": "cross-site"}
            async with browser.session.post(url, json=asked, headers=cross) as answer:
                assert answer.status == 403
            plain = {"Origin": browser.base, "Content-Type": "text/plain"}
            async with browser.session.post(url, data="{}", headers=plain) as answer:
                assert answer.status == 400
            for host in ("rebound.example", f"rebound.example:{browser.page.access.port}", "127.0.0.1:1"):
                async with browser.session.get(f"{browser.base}/api/state", headers={"Host": host}) as answer:
                    assert answer.status == 421, host
            assert (await browser.post("whatif", asked))["status"] == 200

    asyncio.run(run())


def test_every_answer_has_the_policy_and_no_file_outside_the_page_is_served(cluster_file: str) -> None:
    async def run() -> None:
        async with page_of(cluster_file) as browser:
            await browser.opened()
            for path in ("/", "/static/page.js", "/api/state", "/api/nothing", "/static/lang/ko.json"):
                async with browser.session.get(browser.base + path) as answer:
                    policy = answer.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "unsafe" not in policy
                    assert answer.headers["X-Content-Type-Options"] == "nosniff"
            for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/lang", "/static/nothing.js"):
                async with browser.session.get(browser.base + path) as answer:
                    assert answer.status == 404, path

    asyncio.run(run())


def test_a_page_of_a_file_has_no_actions(cluster_file: str) -> None:
    async def run() -> None:
        async with page_of(cluster_file) as browser:
            await browser.opened()
            assert (await browser.get("state"))["actions"] is None
            for action in ("apply", "delete", "fault", "clock"):
                assert (await browser.post(f"actions/{action}", {}))["status"] == 403

    asyncio.run(run())
