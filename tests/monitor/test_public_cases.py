"""The two true collapses among the public logs, rebuilt from the figures that were read in them (their files have no
licence to copy): in the console format of their trainer they import, and are found under the right name in time.

Shi-qingyu/videoreward-verl, 19 steps: length 245, 138 at step 13, 79 at 15, 2 at 16; entropy .87, .37 at 14, .02 at
18; gradient norm 17, 231 at 14, 408 at 15; KL .001 to 2.8; the score stays between 1.04 and 1.29.
JuncyLu/trl_DAPO, 490 steps logged every 10: length 53, 2.6 at step 20; entropy .96, .44 at 20, .10 at 110; groups
without a gradient .4 to 1; gradient norm 404 at step 30, then 0; the reward rises.
"""

import json

from regimescope.cli import main


def between(points, steps):
    """Straight lines between the figures that are known."""
    values = []
    for step in steps:
        (x0, y0), (x1, y1) = max(p for p in points if p[0] <= step), min(p for p in points if p[0] >= step)
        values.append(y0 if x0 == x1 else y0 + (y1 - y0) * (step - x0) / (x1 - x0))
    return values


def found(log, capsys):
    assert main(["check", str(log), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    return report, next(alert for alert in report["alerts"] if alert["severity"] == "critical" and alert["counts"])


def test_the_collapse_of_a_verl_run_whose_score_never_fell(tmp_path, capsys):
    steps = range(1, 20)
    length = between([(1, 245), (12, 200), (13, 138), (15, 79), (16, 2), (19, 2)], steps)
    entropy = between([(1, 0.87), (10, 0.7), (14, 0.37), (18, 0.02), (19, 0.02)], steps)
    norm = between([(1, 17), (12, 20), (14, 231), (15, 408), (19, 300)], steps)
    kl = between([(1, 0.001), (12, 0.02), (16, 2.8), (19, 2.8)], steps)
    lines = [
        f"\x1b[36m(TaskRunner pid=9)\x1b[0m step:{step} - actor/entropy:{entropy[i]:.3f} - actor/kl_loss:{kl[i]:.4f} - "
        f"actor/grad_norm:{norm[i]:.2f} - critic/score/mean:{1.04 + 0.05 * (i % 6):.3f} - "
        f"critic/advantages/min:0.857 - response_length/mean:{length[i]:.1f}"
        for i, step in enumerate(steps)
    ]
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines))
    report, alert = found(log, capsys)
    assert report["log"]["framework"] == "verl" and alert["signature"] == "length_collapse"
    assert alert["step_detected"] <= 16 and alert["driver"] is None


def test_the_collapse_of_a_trl_run_whose_reward_rose(tmp_path, capsys):
    steps = range(10, 491, 10)
    length = between([(10, 53), (20, 2.6), (490, 2.6)], steps)
    entropy = between([(10, 0.96), (20, 0.44), (110, 0.10), (490, 0.03)], steps)
    dead = between([(10, 0.4), (40, 1.0), (490, 1.0)], steps)
    norm = between([(10, 5), (30, 404), (40, 0), (490, 0)], steps)
    reward = between([(10, 1.75), (20, 3.6), (490, 2.5)], steps)
    rows = [
        f"\r {step // 5}%|#| {step}/490 [10:00<1:00:00, 3.0s/it]"
        f"{{'loss': '0.01', 'grad_norm': '{norm[i]:.4g}', 'reward': '{reward[i]:.4g}', 'completions/mean_length': "
        f"'{length[i]:.4g}', 'entropy': '{entropy[i]:.4g}', 'frac_reward_zero_std': '{dead[i]:.4g}', "
        f"'epoch': '{step / 490:.2f}'}}"
        for i, step in enumerate(steps)
    ]
    log = tmp_path / "train.log"
    log.write_text("\n".join(rows))
    report, alert = found(log, capsys)
    assert report["log"]["framework"] == "trl" and alert["signature"] == "length_collapse"
    assert alert["step_onset"] == 20 and alert["step_detected"] <= 40
