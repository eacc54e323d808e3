"""The JSON routes over a real index, in this process: deltas, envelopes, epochs, commands, refusals."""

import gzip
import json
import math
import random

import plotly.offline
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from regimescope.monitor import Bounds, Limits, Recorder, WeightRule, query
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui import command_api, context, routes, security

TOKEN = {"x-regimescope-token": "read-token"}
START = {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}
TIGHTER = {"pos": [0.8, 5.0], "neg": [0.0, 101.0]}


@pytest.fixture
def monitor(tmp_path):
    """A monitor whose ticks the test makes itself, on an index of its own."""
    root = tmp_path / "runs"
    root.mkdir()
    found = Monitor(root, actor="ana", store=Store.open(root, path=tmp_path / "index.duckdb"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory, write_step):
    """A monitor with a run `demo` of 5 steps, for tests that change nothing."""
    root = tmp_path_factory.mktemp("shared")
    found = Monitor(root, actor="ana", store=Store.open(root, path=tmp_path_factory.mktemp("index") / "index.duckdb"))
    with Recorder(
        root / "demo", sync=True, rule=WeightRule.capped(Bounds.from_wire(START)), limits=Limits(), can=("set_bounds",)
    ) as recorder:
        for step in range(5):
            write_step(recorder, step)
        (root / "demo" / "control").mkdir(mode=0o700)
        found.tick()
        yield found
    found.stop()


@pytest.fixture
def serve_as(monkeypatch):
    """serve_as(monitor, **changes) -> a client of the routes under a context with these changes."""
    monkeypatch.setattr(command_api, "GATE", security.ControlGate())

    def start(monitor, **changes):
        given = {
            "read_token": "read-token",
            "read_only": False,
            "actor": "ana",
            "control_token": None,
            "address": "http://test",
        }
        context.install(context.Context(monitor=monitor, **given | changes))
        return TestClient(Starlette(routes=routes.ROUTES))

    yield start
    context.install(None)


@pytest.fixture
def client(serve_as, monitor):
    return serve_as(monitor)


@pytest.fixture
def calm(serve_as, shared):
    return serve_as(shared)


@pytest.fixture
def run(monitor, record, write_step):
    """A run of 60 steps, ingested."""
    recorder = record(monitor.root / "demo")
    for step in range(60):
        write_step(recorder, step)
    monitor.tick()
    return recorder


def series(client, metrics, run="demo", **values):
    answer = client.get("/api/series", params={"run": run, "metrics": metrics, **values}, headers=TOKEN)
    assert answer.status_code == 200, answer.text
    return answer.json()


def command(client, *, headers=(), **changes):
    body = {
        "run": "demo",
        "kind": "set_bounds",
        "args": TIGHTER,
        "expect": 0,
        "why": "accuracy falls",
        "by": "ana",
    } | changes
    return client.post("/api/commands", json=body, headers={**TOKEN, **dict(headers)})


# -- who may ask --


@pytest.mark.parametrize("route", [r for r in routes.ROUTES if r.path != "/api/plotly.min.js"], ids=lambda r: r.path)
@pytest.mark.parametrize("token", [None, "", "read-toke", "read-token2", "é"])
def test_every_route_but_the_library_wants_the_read_token(calm, route, token):
    method = "POST" if "POST" in route.methods else "GET"
    headers = {} if token is None else {"x-regimescope-token": token.encode()}
    answer = calm.request(method, route.path, headers=headers, params={"run": "demo", "metrics": "accuracy"})
    assert answer.status_code == 401
    assert answer.json() == {"error": "read token missing or wrong"}


def test_routes_are_closed_before_the_server_has_started():
    assert TestClient(Starlette(routes=routes.ROUTES)).get("/api/series", headers=TOKEN).status_code == 403


def test_library_is_plotlys_own_file_gzipped_and_kept():
    client = TestClient(Starlette(routes=routes.ROUTES))
    version = plotly.offline.get_plotlyjs_version()
    answer = client.get(f"/api/plotly.min.js?v={version}")
    assert answer.status_code == 200 and answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.text == plotly.offline.get_plotlyjs()
    assert int(answer.headers["content-length"]) == len(gzip.compress(answer.content, 9, mtime=0)) < 2_000_000
    assert client.get("/api/plotly.min.js?v=0").headers["cache-control"] == "no-cache"
    assert "content-encoding" not in client.get("/api/plotly.min.js", headers={"accept-encoding": "identity"}).headers


# -- series --


def test_first_answer_is_everything_then_only_news(client, run, monitor, write_step):
    first = series(client, "accuracy,R4.clip_low_frac,pos.w_max")
    assert first["last"] == 59
    assert first["series"]["accuracy"]["x"] == list(range(60))
    assert set(first["series"]["pos.w_max"]["y"]) == {11.0}
    assert first["series"]["R4.clip_low_frac"]["y"][0] == pytest.approx(5 / 520, rel=1e-6)
    nothing = client.get(
        "/api/series",
        params={"run": "demo", "metrics": "accuracy", "epoch": first["epoch"], "since": 59},
        headers=TOKEN,
    )
    assert nothing.json() == {"epoch": first["epoch"], "last": 59}
    assert len(nothing.content) < 80
    assert nothing.headers["cache-control"] == "no-store"
    write_step(run, 60, accuracy=0.25)
    monitor.tick()
    news = series(client, "accuracy", epoch=first["epoch"], since=59)
    assert news["epoch"] == first["epoch"] and news["last"] == 60
    assert news["series"] == {"accuracy": {"x": [60], "y": [0.25]}}


def test_news_of_many_metrics_is_what_each_gives_alone(run, monitor, write_step):
    run.scalars(60, {"accuracy": (0.125, 8)}, slice=("env", "math"))
    write_step(run, 60, accuracy=math.nan)
    monitor.tick()
    names = ["accuracy", "grad_norm", "R4.clip_low_frac", "zero_adv.token_frac", "neg.w_max", "pos.w_min"]
    with monitor.store.cursor() as con:
        for slice_id in (0, 1):
            for since in (-1, 41, 60):
                alone = {name: query.rows_after(con, monitor_run(con), slice_id, name, since) for name in names}
                assert query.news(con, monitor_run(con), slice_id, names, since) == alone


def test_a_browser_that_keeps_up_costs_no_metric_query(client, run, monitor, write_step, monkeypatch):
    monitor.tick()
    first = series(client, "accuracy,R4.clip_low_frac")
    for step in (60, 61):
        write_step(run, step, accuracy=0.01 * step)
        monitor.tick()
    with monitor.store.cursor() as con:
        stored = query.news(con, monitor_run(con), 0, ["accuracy", "R4.clip_low_frac"], 59)
    monkeypatch.setattr(query, "news", lambda *given: pytest.fail("the index was asked"))
    body = series(client, "accuracy,R4.clip_low_frac", epoch=first["epoch"], since=first["last"])
    assert body["last"] == 61 and body["series"]["accuracy"] == {"x": [60, 61], "y": [0.6, 0.61]}
    assert body["series"]["R4.clip_low_frac"]["y"] == pytest.approx(stored["R4.clip_low_frac"].values, rel=1e-6)


def monitor_run(con):
    return query.run_key_of(con, "demo")


def test_another_launch_is_another_epoch_and_everything_again(client, run, monitor, record, write_step):
    first = series(client, "accuracy")
    again = record(monitor.root / "demo", launch="second", start="resume", first_step=40)
    for step in range(40, 45):
        write_step(again, step, accuracy=0.9)
    monitor.tick()
    after = series(client, "accuracy", epoch=first["epoch"], since=59)
    assert after["epoch"] != first["epoch"]
    assert after["last"] == 44
    assert after["series"]["accuracy"]["x"] == list(range(45))
    assert after["series"]["accuracy"]["y"][40:] == [0.9] * 5


@pytest.mark.parametrize("since", [-1, 40, 59, 60, 1000])
@pytest.mark.parametrize("epoch", ["", "made-up", "older"])
def test_a_browser_of_another_epoch_gets_everything_whatever_it_has(
    serve_as, run, monitor, tmp_path, write_step, epoch, since
):
    older = series(serve_as(monitor), "accuracy")["epoch"]
    monitor.stop()
    again = Monitor(monitor.root, store=Store.open(monitor.root, path=tmp_path / "index.duckdb"))
    try:
        again.tick()  # the same index, another server
        client = serve_as(again)
        body = series(client, "accuracy", epoch=older if epoch == "older" else epoch, since=since)
        assert body["epoch"] != older and body["last"] == 59
        assert body["series"]["accuracy"]["x"] == list(range(60))
    finally:
        again.stop()


@pytest.mark.parametrize("seed", range(4))
def test_a_browser_that_follows_has_what_one_that_comes_later_gets(client, monitor, record, write_step, seed):
    chance, names = random.Random(seed), "accuracy,R4.token_frac,pos.w_max"
    recorder, step, epoch, since, held, restarts = record(monitor.root / "demo"), 0, "", -1, {}, 0
    write_step(recorder, 0)
    for round_ in range(40):
        act = chance.choice(["step", "step", "step", "quiet", "resume", "replaced"] if step else ["step"])
        if act == "step":
            for _ in range(chance.randint(1, 3)):
                step += 1
                write_step(recorder, step, accuracy=chance.random())
        elif act == "resume":
            recorder.close()
            step = chance.randint(0, step)
            recorder = record(monitor.root / "demo", launch=f"l{round_}", start="resume", first_step=step)
            write_step(recorder, step, accuracy=chance.random())
        elif act == "replaced":  # the oldest file is written anew: the run is read again from the beginning
            oldest = min((monitor.root / "demo" / "segments").iterdir())
            oldest.write_text(oldest.read_text().replace('"accuracy":0.', '"accuracy":0.1', 1))
        monitor.tick()
        body = series(client, names, epoch=epoch, since=since)
        if body["epoch"] != epoch:
            held, restarts = {}, restarts + 1
        for name, found in body.get("series", {}).items():
            held.setdefault(name, {}).update(zip(found["x"], found["y"], strict=True))
        epoch, since = body["epoch"], body["last"]
        fresh = series(client, names)
        assert (fresh["epoch"], fresh["last"]) == (epoch, since)
        assert held == {name: dict(zip(f["x"], f["y"], strict=True)) for name, f in fresh["series"].items()}, act
    assert restarts > 1


def test_non_finite_values_are_null_and_counted(client, run, monitor, write_step):
    write_step(run, 60, accuracy=math.nan)
    write_step(run, 61, accuracy=math.inf)
    write_step(run, 62, accuracy=0.5)
    monitor.tick()
    found = series(client, "accuracy")["series"]["accuracy"]
    assert found["y"][60:] == [None, None, 0.5]
    assert found["bad"] == [60, 61] and found["bad_count"] == 2


def test_envelope_keeps_an_isolated_spike_and_the_zoom_is_finer(client, monitor, record):
    recorder = record(monitor.root / "long")
    for step in range(3000):
        recorder.step(step, {"accuracy": 9.0 if step == 1777 else 0.5 + step / 10_000})
    monitor.tick()
    whole = series(client, "accuracy", run="long", n=200)
    found = whole["series"]["accuracy"]
    assert found["thinned"] and len(found["x"]) <= 200
    assert (1777, 9.0) in zip(found["x"], found["y"], strict=True)
    assert found["x"] == sorted(found["x"])
    part = series(client, "accuracy", run="long", x0=1700, x1=1800, n=1200)["series"]["accuracy"]
    assert part["x"] == list(range(1700, 1801)) and "thinned" not in part
    assert len(series(client, "accuracy", run="long", n=1)["series"]["accuracy"]["x"]) > 25, "n is at least 50"
    assert len(series(client, "accuracy", run="long", n=10**9)["series"]["accuracy"]["x"]) <= 2000


def test_a_slice_has_its_own_values(client, run, monitor):
    run.scalars(60, {"accuracy": (0.125, 8)}, slice=("env", "math"))
    run.step(60, {"accuracy": 0.5})
    monitor.tick()
    assert series(client, "accuracy", slice=1)["series"]["accuracy"] == {"x": [60], "y": [0.125]}


def test_the_onset_of_a_slice_is_marked_with_its_name(client, run, monitor):
    for step in range(60, 105):
        length = 300.0 if step < 90 else 3.0
        row = {"response_length_mean": (length, 64), "accuracy": (0.5 if step < 90 else 0.0, 64)}
        run.step(step, row, slice=("env", "proofs"))
        run.step(step, {"accuracy": 0.5, "response_length_mean": 300.0})
    monitor.tick()
    labels = {m["label"] for m in series(client, "accuracy")["marks"] if m["kind"] == "onset"}
    assert "length collapse of env=proofs: onset" in labels


def test_applied_bounds_checkpoints_and_restarts_are_marked(client, run, monitor, record, write_step):
    run.event("checkpoint", {"path": "ckpt/59"}, step=59)
    write_step(run, 60)
    monitor.tick()
    marks = series(client, "accuracy")["marks"]
    assert [(m["step"], m["kind"]) for m in marks if m["kind"] == "checkpoint"] == [(59, "checkpoint")]
    again = record(monitor.root / "demo", launch="second", start="resume", first_step=50)
    write_step(again, 50)
    monitor.tick()
    body = series(client, "accuracy")
    assert body["repeated"] == [[50, 60]]
    assert not [m for m in body["marks"] if m["kind"] == "checkpoint"], (
        "the checkpoint lies in the stretch that is repeated"
    )


@pytest.mark.parametrize(
    ("values", "status", "word"),
    [
        ({"run": "nowhere"}, 404, "run"),
        ({"run": "../etc"}, 404, "run"),
        ({"slice": 7}, 404, "slice"),
        ({"metrics": "accuracy,no_such_metric"}, 404, "no_such_metric"),
        ({"metrics": ""}, 400, "metrics"),
        ({"metrics": ",".join(f"m{i}" for i in range(65))}, 400, "64"),
        ({"since": "x"}, 400, "since"),
        ({"x0": "1.5"}, 400, "x0"),
        ({"n": "9" * 30}, 400, "n"),
    ],
)
def test_a_wrong_question_gets_one_sentence(calm, values, status, word):
    answer = calm.get("/api/series", params={"run": "demo", "metrics": "accuracy"} | values, headers=TOKEN)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"] and word in answer.json()["error"]


# -- commands --


def test_a_command_becomes_a_file_for_the_trainer(client, run, monitor):
    (monitor.root / "demo" / "control").mkdir(mode=0o700, exist_ok=True)
    answer = command(client)
    assert answer.status_code == 202, answer.text
    written = json.loads((monitor.root / "demo" / "control" / f"{answer.json()['id']}.json").read_text())
    assert (written["kind"], written["args"], written["expect"], written["by"]) == ("set_bounds", TIGHTER, 0, "ana")
    assert written["launch"] == run.launch and written["why"] == "accuracy falls"


@pytest.mark.parametrize(
    ("changes", "status", "word"),
    [
        ({"run": "nowhere"}, 404, "run"),
        ({"run": "../demo"}, 404, "run"),
        ({"kind": "delete"}, 400, "kind"),
        ({"kind": "pause"}, 400, "args"),
        ({"args": {"pos": [0.8, 5.0]}}, 400, "args"),
        ({"args": {"pos": [0.8, 5.0], "neg": 3}}, 400, "args"),
        ({"args": {"pos": [5.0, 0.8], "neg": [0.0, 101.0]}}, 400, "w_min"),
        ({"args": {"pos": ["NaN", 5.0], "neg": [0.0, 101.0]}}, 400, "w_min"),
        ({"args": {"pos": [0.8, 500.0], "neg": [0.0, 101.0]}}, 409, "limits"),
        ({"kind": "rollback", "args": {"checkpoint": 3}}, 400, "args"),
        ({"kind": "rollback", "args": {"checkpoint": True, "bounds": TIGHTER}}, 400, "args"),
        ({"kind": "rollback", "args": {"checkpoint": "../3", "bounds": TIGHTER}}, 400, "args"),
        ({"kind": "rollback", "args": {"checkpoint": 3, "bounds": {"pos": [0.8, 5.0]}}}, 400, "args"),
        ({"kind": "rollback", "args": {"checkpoint": 3, "bounds": TIGHTER}, "why": ""}, 400, "why"),
        ({"kind": "rollback", "args": {"checkpoint": 3, "bounds": TIGHTER}}, 409, "does not take"),
        ({"expect": -1}, 400, "expect"),
        ({"expect": True}, 400, "expect"),
        ({"why": " "}, 400, "why"),
        ({"why": "x" * 1001}, 400, "why"),
        ({"by": 7}, 400, "by"),
        ({"surprise": 1}, 400, "surprise"),
    ],
)
def test_a_wrong_command_is_refused_and_nothing_is_written(calm, shared, changes, status, word):
    folder = shared.root / "demo" / "control"
    answer = command(calm, **changes)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]
    assert not list(folder.iterdir())


def test_a_rollback_names_one_of_the_runs_own_checkpoints(client, monitor, record, write_step):
    recorder = record(monitor.root / "demo", can=("set_bounds", "rollback"))
    (monitor.root / "demo" / "control").mkdir(mode=0o700, exist_ok=True)
    for step in range(4):
        write_step(recorder, step)
        deleted = {"deleted": [0]} if step == 3 else {}
        recorder.event("checkpoint", {"path": f"checkpoints/{step}"} | deleted, step=step)
    monitor.tick()
    for step, bounds, word in (
        (0, TIGHTER, "no checkpoint of step 0; it has 1, 2, 3"),  # deleted since
        (7, TIGHTER, "no checkpoint of step 7"),
        (2, {"pos": [0.8, 500.0], "neg": [0.0, 101.0]}, "limits"),
    ):
        answer = command(client, kind="rollback", args={"checkpoint": step, "bounds": bounds})
        assert answer.status_code == 409 and word in answer.json()["error"]
    answer = command(client, kind="rollback", args={"checkpoint": 2, "bounds": TIGHTER})
    assert answer.status_code == 202, answer.text
    (path,) = (monitor.root / "demo" / "control").glob("*.json")
    written = json.loads(path.read_text())
    assert (written["kind"], written["args"]) == ("rollback", {"checkpoint": 2, "bounds": TIGHTER})
    monitor.tick()
    with monitor.store.cursor() as con:
        (row,) = query.commands(con, 1)
    assert [(change.name, change.old, change.new) for change in row.changes] == [("pos.w_max", 11.0, 5.0)]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 5000, "application/json", 400),
        (b"{}", "text/plain", 415),
        (b" " * 8193, "application/json", 413),
    ],
)
def test_a_body_that_is_no_small_json_object_is_refused(calm, content, kind, status):
    answer = calm.post("/api/commands", content=content, headers=TOKEN | {"content-type": kind})
    assert answer.status_code == status and list(answer.json()) == ["error"]


def test_an_ended_run_takes_no_command(client, run, monitor):
    run.end("finished")
    monitor.tick()
    answer = command(client)
    assert answer.status_code == 409 and "ended" in answer.json()["error"]


def test_read_only_refuses_before_it_looks(serve_as, shared):
    answer = command(serve_as(shared, read_only=True))
    assert answer.status_code == 403 and "read-only" in answer.json()["error"]


def test_control_token_is_asked_for_and_five_wrong_ones_are_the_end(serve_as, run, monitor):
    (monitor.root / "demo" / "control").mkdir(mode=0o700, exist_ok=True)
    client = serve_as(monitor, control_token="c" * 20)
    good, wrong = {"x-regimescope-control": "c" * 20}, {"x-regimescope-control": "d" * 20}
    missing = command(client)
    assert missing.status_code == 403 and "x-regimescope-control" in missing.json()["error"]
    assert command(client, headers=good).status_code == 202
    assert [command(client, headers=wrong).status_code for _ in range(6)] == [403] * 5 + [429]
    assert command(client, headers=good).status_code == 429, (
        "the right token must not tell itself apart while guessing is shut off"
    )
