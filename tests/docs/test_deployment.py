"""The files in deploy/: they parse, and what they refer to (commands, options, paths, metrics, variables) exists."""

from __future__ import annotations

import configparser
import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx2
import pytest
import yaml

from deploy import shop
from romancy import App, WorkerOptions
from romancy.cli.group import main
from romancy.core.model import SECOND, duration_us
from romancy.http import metrics
from romancy.testing import environment
from tests.docs.helm_chart import Chart

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "romancy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SHUTDOWN = 3 * duration_us(WorkerOptions().grace) / SECOND + 5
"""Seconds after which `--workers` kills what still runs."""
GIVEN = {"databaseUrl": "postgresql://db/shop", "tokens": "SECRET", "existingName": ""}


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def values_of(**changes: Any) -> dict[str, Any]:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert changes.keys() <= values.keys()
    return values | {"secret": GIVEN} | changes


def chart(release: str = "shop", **changes: Any) -> list[dict[str, Any]]:
    return Chart(CHART, values_of(**changes), release).manifests()


def only(manifests: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [found] = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


def containers(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            yield from pod.get("initContainers", ())
            yield from pod["containers"]


def commands() -> Iterator[tuple[str, list[str]]]:
    yield "Dockerfile", json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[0])
    for name, service in compose()["services"].items():
        if command := service.get("command"):
            yield f"compose {name}", command
    for container in containers(chart()):
        yield f"helm {container['name']}", container["command"]
    for unit in UNITS:
        yield unit.name, shlex.split(read_unit(unit)["Service"]["ExecStart"])


def read_unit(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text(encoding="utf-8"))
    return unit


@pytest.mark.parametrize(("where", "command"), [*commands()], ids=lambda value: value if isinstance(value, str) else "")
def test_commands_and_options_exist(where: str, command: list[str]) -> None:
    program, name, *arguments = command
    assert Path(program).name == "romancy"
    context = click.Context(main)
    found = main.get_command(context, name)
    assert found is not None, f"there is no command {name}"
    with found.make_context(name, list(arguments)) as parsed:
        assert name == "migrate" or "shop:app" in str(parsed.params)


def test_variables_are_known_to_the_command_line() -> None:
    files = [file for file in DEPLOY.rglob("*") if file.is_file() and file.parent.name != "__pycache__"]
    named = set(re.findall(r"\bROMANCY_[A-Z]+\b", "".join(file.read_text() for file in files)))
    sources = "".join(file.read_text() for file in (DEPLOY.parent / "src" / "romancy").rglob("*.py"))
    assert "ROMANCY_DATABASE" in named
    assert {name for name in named if name not in sources} == set()


# --- the app of the folder ------------------------------------------------------------------------------------------
async def test_the_app_runs() -> None:
    async with environment(workflows=[shop.order]) as env:
        await env.send_event("order.placed", "test", {"order_id": "ORD-1"})
        [instance] = (await env.app.list_instances()).items
        await env.send_event("payment.completed", "bank", subject="ORD-1")
        assert (await env.app.get_instance(instance.instance_id)).output == "parcel of ORD-1"


async def test_probes_and_metrics_are_answered() -> None:
    """The paths of all probes, and the metrics that the scaler asks for, of an app that runs no workflows itself."""
    paths = set(re.findall(r"/health/\w+", DOCKERFILE))
    [server] = [container for container in containers(chart()) if container["name"] == "server"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server[probe]["httpGet"]["port"] == server["ports"][0]["name"]
        paths.add(server[probe]["httpGet"]["path"])
    assert paths == {"/health/live", "/health/ready"}
    query = yaml.safe_load((CHART / "values.yaml").read_text())["keda"]["query"]
    async with App(":memory:", workflows=[shop.order], worker=False) as app:
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in paths:
                assert (await client.get(path)).status_code == 200
            shown = (await client.get("/metrics")).text
    names = re.findall(r"romancy_\w+", query)
    assert names
    for name in names:
        assert re.search(rf"^{name} ", shown, re.MULTILINE), f"{name} is not in /metrics"


def test_metrics_of_the_page_exist() -> None:
    page = (DEPLOY.parent / "docs" / "deployment.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bromancy_(\w+)\b", page))
    source = Path(metrics.__file__).read_text(encoding="utf-8")
    assert "instances_overdue" in named
    assert {name for name in named if not re.search(rf'"(romancy_)?{name}"', source)} == set()


# --- containers -----------------------------------------------------------------------------------------------------
def test_the_image_is_small_and_not_root() -> None:
    assert re.findall(r"^FROM (\S+)(?: AS (\w+))?$", DOCKERFILE, re.MULTILINE) == [
        ("python:3.13-slim", "build"),
        ("python:3.13-slim", ""),
    ]
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == ["10001"]
    assert "--uid 10001" in last
    assert "HEALTHCHECK" in last
    kept = set((DEPLOY / ".dockerignore").read_text().split())
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.*) \./$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert {f"!{name}" for name in copied} | {"*"} == kept
    assert all((DEPLOY / name).exists() for name in copied if "*" not in name)


def test_compose_starts_things_in_order() -> None:
    services = compose()["services"]
    assert set(services) == {"database", "migrate", "server", "worker"}
    assert services["migrate"]["depends_on"]["database"]["condition"] == "service_healthy"
    for name in ("server", "worker"):
        service = services[name]
        assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert int(service["stop_grace_period"].removesuffix("s")) > SHUTDOWN
        assert service["environment"]["ROMANCY_DATABASE"].startswith("postgresql://")
        assert service["read_only"] is True
    assert "ROMANCY_TOKENS" in services["server"]["environment"]
    for name in ("migrate", "worker"):
        assert services[name]["healthcheck"] == {"disable": True}, "the image's asks a port that it does not have"


# --- systemd --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_hardened_and_stop_in_good_order(unit: Path) -> None:
    service = read_unit(unit)["Service"]
    for name, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "User": "romancy",
        "Restart": "always",
    }.items():
        assert service[name] == value
    assert int(service["TimeoutStopSec"]) > SHUTDOWN
    assert service["StateDirectory"] == "romancy"


# --- Kubernetes -----------------------------------------------------------------------------------------------------
def test_the_chart_runs_a_server_and_workers() -> None:
    manifests = chart()
    assert sorted(manifest["kind"] for manifest in manifests) == [
        "Deployment",
        "Deployment",
        "PodDisruptionBudget",
        "Secret",
        "Service",
    ]
    for part in ("server", "worker"):
        spec = only(manifests, "Deployment", f"shop-{part}")["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert labels["app.kubernetes.io/component"] == part
        assert spec["replicas"] == 2
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > SHUTDOWN
        assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    service = only(manifests, "Service", "shop")["spec"]["selector"]
    assert (
        service.items()
        <= only(manifests, "Deployment", "shop-server")["spec"]["template"]["metadata"]["labels"].items()
    )


def test_a_server_that_stops_refuses_no_requests() -> None:
    """Its port closes at once on SIGTERM, but its Service needs some seconds to learn of it."""
    pod = only(chart(), "Deployment", "shop-server")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert pod["terminationGracePeriodSeconds"] > SHUTDOWN + int(seconds)


def test_all_containers_have_resources() -> None:
    """A namespace with a quota takes no pod with a container that says nothing."""
    for container in containers(chart()):
        assert container["resources"].keys() == {"requests", "limits"}, container["name"]


def test_a_broken_build_replaces_no_workers() -> None:
    """What has no probe counts as ready at once, even if it ends a second later."""
    spec = only(chart(), "Deployment", "shop-worker")["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert "readinessProbe" not in container
    assert spec["minReadySeconds"] >= 10


def test_secrets_reach_the_containers() -> None:
    manifests = chart()
    assert only(manifests, "Secret", "shop")["stringData"] == {
        "database-url": "postgresql://db/shop",
        "tokens": "SECRET",
    }
    for container in containers(manifests):
        env = {variable["name"]: variable for variable in container["env"]}
        reference = env["ROMANCY_DATABASE"]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": "shop", "key": "database-url"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert ("ROMANCY_TOKENS" in env) == (container["name"] == "server")


def test_a_changed_secret_replaces_the_pods() -> None:
    def annotations(**changes: Any) -> list[dict[str, str] | None]:
        deployments = [m for m in chart(secret=GIVEN | changes) if m["kind"] == "Deployment"]
        return [m["spec"]["template"]["metadata"].get("annotations") for m in deployments]

    for before, after in zip(annotations(), annotations(tokens="OTHER"), strict=True):
        assert before != after
    assert annotations(existingName="mine") == [None, None]


def test_a_secret_of_your_own_is_used() -> None:
    manifests = chart(secret={**GIVEN, "existingName": "mine"}, env=[{"name": "A", "value": "b"}], migrate=False)
    assert "Secret" not in {manifest["kind"] for manifest in manifests}
    for container in containers(manifests):
        assert container["name"] != "migrate"
        assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "mine"
        assert {"name": "A", "value": "b"} in container["env"]


def test_missing_secrets_are_refused() -> None:
    with pytest.raises(AssertionError, match="databaseUrl is required"):
        chart(secret={**GIVEN, "databaseUrl": ""})


def test_a_release_may_have_a_name_that_yaml_reads_as_something_else() -> None:
    for manifest in chart("123", secret={**GIVEN, "databaseUrl": "x"}):
        assert manifest["metadata"]["name"].startswith("123")
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "123"
    for container in containers(chart(secret={**GIVEN, "existingName": "1e3"})):
        assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "1e3"


def test_keda_scales_the_workers() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["keda"]
    manifests = chart(keda=values | {"enabled": True})
    assert "replicas" not in only(manifests, "Deployment", "shop-worker")["spec"], "two would set it"
    spec = only(manifests, "ScaledObject", "shop-worker")["spec"]
    assert spec["scaleTargetRef"]["name"] == "shop-worker"
    [trigger] = spec["triggers"]
    assert trigger["type"] == "prometheus"
    assert trigger["metadata"]["query"] == values["query"]
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes strings only"


def test_the_schema_has_all_values() -> None:
    """Helm refuses a name that it does not have."""

    def names(values: dict[str, Any], part: dict[str, Any]) -> None:
        assert part["additionalProperties"] is False
        assert part["properties"].keys() - {"global"} == values.keys()
        for name, value in values.items():
            if "properties" in part["properties"][name]:
                names(value, part["properties"][name])

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    names(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")), schema)


def helm(release: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["helm", "template", release, str(CHART), "--values", "-"],
        input=json.dumps(values, ensure_ascii=False),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize(
    "values",
    [
        {"worker": {"replica": 3}},
        {"migrate": "false"},
        {"env": {"A": "b"}},
        {"image": {"tag": 1.1}},
        {"secret": GIVEN | {"tokens": 12345678}},
    ],
    ids=str,
)
def test_helm_refuses_wrong_values(values: dict[str, Any]) -> None:
    done = helm("shop", {"secret": GIVEN} | values)
    assert "don't meet the specifications of the schema" in done.stderr


def combinations() -> Iterator[dict[str, Any]]:
    keda, image = values_of()["keda"], values_of()["image"]
    from_pod = {"fieldRef": {"fieldPath": "metadata.name"}}
    choices: list[tuple[dict[str, Any], ...]] = [
        ({}, {"secret": {**GIVEN, "existingName": "mine"}}, {"secret": {**GIVEN, "databaseUrl": 'p"\\#\U0001f511: x'}}),
        ({}, {"keda": keda | {"enabled": True, "query": 'max(romancy_queue_running{queue="a"})', "threshold": 50}}),
        ({}, {"env": [{"name": "A", "value": "b\nc: d\n"}, {"name": "B", "valueFrom": from_pod}]}),
        ({"imagePullSecrets": [{"name": "a"}], "migrate": False, "image": image | {"tag": 20250101}}, {}),
    ]
    for parts in itertools.product(*choices):
        yield {name: value for part in parts for name, value in part.items()}


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("release", ["true", "s" * 49 + "-hop"])
def test_helm_agrees(release: str) -> None:
    """What Helm makes of the chart is what the other tests see."""
    for changes in combinations():
        done = helm(release, values_of(**changes))
        assert done.returncode == 0, done.stderr
        made = [m for m in yaml.safe_load_all(done.stdout) if m]
        assert sorted(made, key=str) == sorted(chart(release, **changes), key=str), changes
