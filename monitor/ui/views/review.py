"""The dialogs before a command: what will change, for which run, why, and then exactly one command.

What is shown is frozen when the dialog opens (`Request`); Apply sends that or nothing. It refuses when the run was
restarted or its bounds moved while the dialog was open, and a second click on Apply sends nothing. The trainer checks
all of it again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import streamlit as st

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.errors import ControlError
from regimescope.monitor.query import BoundChange, named_bounds
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.header import REVIEW_OPEN
from regimescope.monitor.ui.session import actor
from regimescope.monitor.ui.texts import REGIME_OF, bound_label, driver_text, eps_label, weight
from regimescope.monitor.ui.views.predicted import draw_prediction

_SENT, _REQUEST = "sent_requests", "review_request"
MOVES = ("set_bounds", "rollback")
"Commands that set bounds; they name the revision that was seen."
TYPED = frozenset({"pause", "stop", "rollback"})
"Commands that want the run's name typed, beside the tightening of a negative bound."
_TITLES = {
    "set_bounds": "Review change of bounds",
    "rollback": "Roll back the run",
    "pause": "Pause the run",
    "resume": "Resume the run",
    "checkpoint": "Save a checkpoint",
    "stop": "Stop the run",
}
_EFFECTS = {
    "pause": "The trainer stops at its next step boundary and keeps reading commands every half second.",
    "resume": "The trainer goes on with the next step, under the bounds in force.",
    "checkpoint": "The trainer writes a checkpoint at its next step boundary and goes on.",
    "stop": "The trainer ends cleanly at its next step boundary. Only a person at the machine can resume it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person is about to ask, as it stood when the dialog opened."""

    kind: str
    "set_bounds, pause, resume, checkpoint, stop or rollback."
    path: str
    "The run, below the root."
    run_key: int
    launch_id: str | None
    "Another launch meanwhile: the request is void."
    revision: int | None
    "Bounds revision that was seen; goes out as `expect` of set_bounds and rollback."
    old: Bounds | None = None
    new: Bounds | None = None
    alert_id: str | None = None
    checkpoint: int | None = None
    "rollback: its step."
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    "One per opened dialog: a token that was sent is never sent again."

    @classmethod
    def of(
        cls,
        facts: RunFacts,
        kind: str,
        *,
        new: Bounds | None = None,
        alert_id: str | None = None,
        checkpoint: int | None = None,
    ) -> Request:
        """As the run stands now."""
        bounds = facts.bounds
        return cls(
            kind=kind,
            path=facts.run.path,
            run_key=facts.run.run_key,
            launch_id=facts.run.launch_id,
            revision=None if bounds is None else bounds.revision,
            old=None if bounds is None or new is None else bounds.bounds,
            new=new,
            alert_id=alert_id,
            checkpoint=checkpoint,
        )

    @property
    def args(self) -> dict[str, object]:
        """What the command carries."""
        if self.new is None:
            return {}
        wire: dict[str, object] = {**self.new.to_wire()}
        return {"checkpoint": self.checkpoint, "bounds": wire} if self.kind == "rollback" else wire

    @property
    def changes(self) -> tuple[BoundChange, ...]:
        """The bounds that would move."""
        if self.old is None or self.new is None:
            return ()
        before = named_bounds(self.old)
        return tuple(
            BoundChange(name=name, old=before[name], new=value)
            for name, value in named_bounds(self.new).items()
            if value != before[name]
        )

    @property
    def needs_name(self) -> bool:
        """Whether the run's name must be typed."""
        return self.kind in TYPED or any(tightens_negative(change) for change in self.changes)


def tightens_negative(change: BoundChange) -> bool:
    """Whether a bound of A<0 gets closer to 1: w_min up or w_max down. DISPO reports sudden collapse for either."""
    if change.old is None or not change.name.startswith("neg."):
        return False
    return change.new > change.old if change.name.endswith("w_min") else change.new < change.old


def relaxes(change: BoundChange) -> bool:
    """Whether the bound holds fewer tokens afterwards."""
    if change.old is None:
        return False
    return change.new < change.old if change.name.endswith("w_min") else change.new > change.old


def ask(request: Request) -> None:
    """Remember what is to be reviewed; the page opens the dialog at its end, and again until Cancel or Apply."""
    st.session_state[_REQUEST] = request


def forget() -> None:
    """Nothing is under review any more: Cancel, Apply, another run or another page."""
    st.session_state.pop(_REQUEST, None)
    st.session_state[REVIEW_OPEN] = False


def open_review(path: str) -> None:
    """Open the dialog where something is under review for this run; a request for another run is dropped."""
    request: Request | None = st.session_state.get(_REQUEST)
    if request is None:
        return
    if request.path != path:
        forget()
        return
    st.session_state[REVIEW_OPEN] = True
    st.dialog(_TITLES[request.kind], width="medium", dismissible=False, icon=":material/tune:")(_review)(request)


def _review(request: Request) -> None:
    ctx = current()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.text("Run", width="content")
        st.code(request.path, language=None, width="content")
    facts = load_facts(ctx, request.path)
    _what(request, facts)
    if facts is not None and request.changes and request.new is not None:
        draw_prediction(ctx, facts, request.new, place="review")
    obstacle = why_not(request, facts)
    if obstacle:
        st.error(obstacle, icon=":material/block:")
    with st.form("review", enter_to_submit=False, border=False):
        why = st.text_area(
            "Reason (required)", key=f"why-{request.token}", placeholder="What you saw, and what you expect", height=80
        )
        typed = _name_field(request)
        with st.container(horizontal=True, horizontal_alignment="right"):
            cancelled = st.form_submit_button("Cancel")
            applied = st.form_submit_button("Apply", type="primary", icon=":material/send:", disabled=bool(obstacle))
    if cancelled:
        _close()
    if applied and not obstacle:
        _apply(ctx, request, why.strip(), typed)


def _what(request: Request, facts: RunFacts | None) -> None:
    if request.kind == "rollback" and request.checkpoint is not None:
        last = None if facts is None else facts.live.last_step
        done = (
            f" Steps {request.checkpoint + 1} to {last} count no longer, and stay as a dimmed stretch." if last else ""
        )
        st.text(
            f"The trainer loads its checkpoint of step {request.checkpoint} at its next step boundary and goes on at "
            f"step {request.checkpoint + 1}, in a launch of its own.{done} Later checkpoints are set aside."
        )
        if not request.changes:
            st.text("The bounds stay as they are.")
    elif request.kind != "set_bounds":
        st.text(_EFFECTS[request.kind])
    for change in request.changes:
        regime = REGIME_OF[change.name]
        with st.container(border=True, gap="xsmall"):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.badge(regime, color="blue" if regime in ("R1", "R2") else "orange")
                old = weight(change.old) if change.old is not None else "?"
                st.markdown(f"**{bound_label(change.name)}: {old} → {weight(change.new)}**")
                if relaxes(change):
                    st.badge("relaxes", icon=":material/unfold_more:", color="green")
                else:
                    st.badge("tightens", icon=":material/unfold_less:", color="orange")
            st.caption(
                f"{driver_text(regime)}. {eps_label(change.name, change.old)} → {eps_label(change.name, change.new)}"
            )
    if request.kind in MOVES:
        st.caption(
            f"Replaces revision {request.revision}; the trainer applies or rejects it at its next step boundary."
        )


def _name_field(request: Request) -> str | None:
    if not request.needs_name:
        return None
    words = {"set_bounds": "tighten a bound of A<0", "rollback": "roll it back"}
    doing = words.get(request.kind, f"{request.kind} it")
    return st.text_input(f"Type the run's name to {doing}", key=f"name-{request.token}")


def why_not(request: Request, facts: RunFacts | None) -> str:
    """What stands between this request and the trainer now; empty = nothing."""
    if facts is None:
        return "The run is gone."
    if facts.live.ended:
        return "The run has ended: nobody would read this."
    if facts.live.stale:
        return "The run is silent: nobody would read this. See whether its process is alive."
    if facts.run.launch_id != request.launch_id:
        return "The run was restarted while this was open. Cancel and look again."
    if request.kind not in MOVES:
        return ""
    if request.kind == "rollback" and request.checkpoint not in {event.step for event in facts.checkpoints}:
        return "The checkpoint was deleted while this was open. Cancel and pick another."
    if facts.bounds is None or facts.bounds.revision != request.revision:
        return "The bounds changed while this was open. Cancel and look again."
    if change_under_way(facts):
        return "Another change of bounds is on its way. Wait for its answer."
    return ""


def change_under_way(facts: RunFacts) -> bool:
    """Whether the trainer has a change of bounds or a rollback to answer."""
    return any(command.kind in MOVES and command.status in ("pending", "applying") for command in facts.commands)


def _apply(ctx: Context, request: Request, why: str, typed: str | None) -> None:
    if not why:
        st.error("Give a reason: the next person needs it.", icon=":material/edit:")
        return
    if request.needs_name and (typed or "").strip() != request.path:
        st.error("The typed name is not this run's name.", icon=":material/edit:")
        return
    sent: set[str] = st.session_state.setdefault(_SENT, set())
    if request.token in sent:
        _close()
        return
    try:
        command = ctx.monitor.requests.submit(
            request.run_key,
            kind=request.kind,
            args=request.args,
            expect=request.revision if request.kind in MOVES else None,
            by=actor(),
            why=why,
            alert=request.alert_id,
        )
    except ControlError as error:
        st.error("Nothing was sent.", icon=":material/error:")
        st.text(str(error))
        return
    sent.add(request.token)
    st.session_state["last_sent"] = command.id
    _close()


def _close() -> None:
    forget()
    st.rerun()
