"""A training loop that is not ours, plain torch: `python torch_loop.py RUN_DIR|- sync|thread`. Prints the loss of every
step and a hash of the weights, bit for bit; records them where it is given a folder."""

import contextlib
import hashlib
import sys

import torch

from regimescope.monitor import Recorder


def main(run_dir: str, how: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with contextlib.ExitStack() as stack:
        recorder = None if run_dir == "-" else stack.enter_context(Recorder(run_dir, sync=how == "sync"))
        for step in range(200):
            inputs = torch.randn(32, 8)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(loss.item().hex())
            if recorder is not None:
                recorder.step(step, {"loss": loss.item(), "grad_norm": norm.item(), "kl_ref": float("nan")})
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest())


main(*sys.argv[1:])
