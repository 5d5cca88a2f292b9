"""What the numbers count, and that the documents and the dashboard name no others."""

import json
import re
from pathlib import Path

import pytest
import yaml

import engine
from server.metrics import Metrics, Snapshot
from server.playout import Playout
from tests.fakes import FakeEngine

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/framecast.json").read_text())
STATS = engine.EngineStats(8, 2, 3, 100, 37.5, {"stop": 4}, 1 << 20)


@pytest.fixture
def metrics():
    made = Metrics()
    made.describe(FakeEngine())
    made.render(Snapshot(STATS, ready=True, draining=False))
    return made


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"framecast_{name}", labels)


def exposed(metrics):
    """Name as it is written in a query -> type and labels, of our own metrics."""
    found = {}
    for family in metrics.registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        kind = "gauge" if family.type == "info" else family.type
        found[family.name + suffix] = kind
    return found


def documented():
    text = (ROOT / "server/README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- metrics -->\n(.*?)<!-- /metrics -->", text, re.DOTALL)[1]
    return re.findall(r"^\| `(\w+)` \| (\w+) \|(.*?)\| (.+) \|$", block, re.MULTILINE)


def labels_of(metrics, name):
    """Labels as a scrape shows them, once everything has been counted."""
    metrics.requests.labels("/audio/speech", "200", "stop").inc()
    metrics.book_end(engine.Stats(frames=1, seed=1), 0.5)
    families = {family.name: family for family in metrics.registry.collect()}
    samples = families[re.sub("_(total|info)$", "", name)].samples
    return {label for sample in samples for label in sample.labels} - {"le"}


def test_the_readme_documents_every_metric_with_its_type_and_no_other(metrics):
    ours = {name: kind for name, kind in exposed(metrics).items() if name.startswith("framecast")}
    assert {name: kind for name, kind, _, _ in documented()} == ours


def test_the_readme_documents_the_labels(metrics):
    for name, _, labels, _ in documented():
        assert set(re.findall(r"`(\w+)`", labels)) == labels_of(metrics, name), name


def test_an_end_counts_its_wait_its_stages_and_its_redraws(metrics):
    stats = engine.Stats(
        frames=10, seed=1, queue_s=0.25, prefill_s=0.5, talker_s=1.0, predictor_s=2.0, codec_s=4.0,
        redraws=2,
    )  # fmt: skip
    metrics.book_end(stats, 0.75)
    metrics.book_end(stats, None)
    assert value(metrics, "queue_wait_seconds_sum") == 0.5
    assert value(metrics, "real_time_factor_sum") == 0.75
    assert value(metrics, "real_time_factor_count") == 1
    seconds = [value(metrics, "stage_seconds_total", stage=stage) for stage in
               ("prefill", "talker", "predictor", "codec")]  # fmt: skip
    assert seconds == [1.0, 2.0, 4.0, 8.0]
    assert value(metrics, "stage_frames_total") == 20
    assert value(metrics, "redraws_total") == 4


def test_a_streamed_reply_counts_what_its_listener_heard(metrics):
    times = iter((10.0, 10.75))
    playout = Playout(lambda: next(times))
    playout.write(0.5)
    playout.write(0.5)
    metrics.book_playout(playout)
    assert value(metrics, "listener_underruns_total") == 1
    assert value(metrics, "listener_underrun_seconds_total") == 0.25
    assert value(metrics, "listener_gap_seconds_sum") == 0.75


def test_a_scrape_shows_the_engine_as_it_is_now(metrics):
    assert value(metrics, "memory_bytes") == 1 << 20
    assert (value(metrics, "ready"), value(metrics, "draining")) == (1, 0)
    metrics.render(Snapshot(STATS, ready=False, draining=True))
    assert (value(metrics, "ready"), value(metrics, "draining")) == (0, 1)


def test_two_apps_do_not_share_their_counts(metrics):
    metrics.redraws.inc()
    assert value(Metrics(), "redraws_total") == 0


def expressions():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def test_every_name_on_the_dashboard_is_a_metric(metrics):
    known = set()
    for name, kind in exposed(metrics).items():
        tails = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        known |= {name + tail for tail in tails}
    shown = set(re.findall(r"\b(?:framecast|process)_\w+", " ".join(expressions())))
    assert len(shown) > 15
    # Only Linux has these.
    assert {name for name in shown - known if not name.startswith("process_")} == set()


def test_every_metric_of_ours_is_on_the_dashboard(metrics):
    text = " ".join(expressions())
    missing = {
        name for name in exposed(metrics) if name.startswith("framecast") and name not in text
    }
    assert missing == set()


def test_every_grouping_on_the_dashboard_is_a_label(metrics):
    for expression in expressions():
        for label, name in re.findall(r"sum by \((\w+)\) \(rate\((\w+?)(?:_bucket)?\{", expression):
            assert label == "le" or label in labels_of(metrics, name), expression


def test_panels_have_their_own_ids_and_places():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_compose_mounts_files_that_exist_and_grafana_asks_the_prometheus_there():
    deploy = ROOT / "deploy"
    compose = yaml.safe_load((deploy / "compose.yaml").read_text())
    services, named = compose["services"], compose["volumes"]
    mounted = [v.split(":")[0] for service in services.values() for v in service.get("volumes", [])]
    assert mounted and all(path in named or (deploy / path).exists() for path in mounted)
    source = yaml.safe_load(
        (deploy / "grafana/provisioning/datasources/prometheus.yml").read_text()
    )["datasources"][0]
    host, port = source["url"].removeprefix("http://").split(":")
    assert f"{port}:{port}" in services[host]["ports"]
    scrape = yaml.safe_load((deploy / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["static_configs"][0]["targets"][0].split(":")[0] in services
    provider = yaml.safe_load(
        (deploy / "grafana/provisioning/dashboards/framecast.yml").read_text()
    )["providers"][0]
    folders = [v.split(":")[1] for v in services["grafana"]["volumes"]]
    assert provider["options"]["path"] in folders
