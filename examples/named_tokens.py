"""Named tokens: what each client may do over HTTP, and who did what.

`ci` may send events about builds, `prometheus` may read metrics, and `alice` may do everything. In production,
secrets come from the environment: ROMANCY_TOKENS="alice=... ci=events[type=build.*]:..."
"""

import asyncio

import httpx2

from romancy import App, Token, WorkflowContext, wait_event, workflow

ALICE, CI, PROMETHEUS = "alice-0123456789", "ci-0123456789abc", "prometheus-01234"
TOKENS = [
    Token("alice", ALICE),
    Token("ci", CI, scopes=["events[source=ci,type=build.*]"]),
    Token("prometheus", PROMETHEUS, scopes=["metrics"]),
]


@workflow
async def release(ctx: WorkflowContext, version: str) -> str:
    await wait_event(ctx, "build.passed", subject=version)
    await wait_event(ctx, "release.approved", subject=version)
    return f"{version} released"


WORKFLOWS = [release]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS, tokens=TOKENS) as app:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop") as http:

            async def call(method: str, path: str, secret: str, **body: object) -> None:
                kind = "application/cloudevents+json" if path == "/" else "application/json"
                headers = {"authorization": f"Bearer {secret}", "content-type": kind}
                response = await http.request(method, path, headers=headers, json=body or None)
                print(f"{response.status_code} {method} {path} {body.get('type', '')}".rstrip())

            passed = {"specversion": "1.0", "type": "build.passed", "source": "ci", "id": "1", "subject": "2.0"}
            await call("POST", "/api/workflows/release/start", ALICE, args=["2.0"], instance_id="release-2.0")
            await call("POST", "/", CI, **passed)
            await call("POST", "/", CI, **passed | {"type": "release.approved", "id": "2"})
            await call("GET", "/metrics", PROMETHEUS)
            await call("GET", "/api/instances", PROMETHEUS)
            await call("POST", "/cancel/release-2.0", ALICE, reason="a typo")
        for act in (await app.get_instance("release-2.0")).acts:
            print(act.verb, "by", act.who)
        for record in (await app.list_events()).items:
            print(record.event.type, "sent by", record.sent_by)


if __name__ == "__main__":
    asyncio.run(main())

# expect: 201 POST /api/workflows/release/start
# expect: 202 POST / build.passed
# expect: 403 POST / release.approved
# expect: 200 GET /metrics
# expect: 403 GET /api/instances
# expect: 200 POST /cancel/release-2.0
# expect: start by alice
# expect: cancel by alice
# expect: build.passed sent by ci
