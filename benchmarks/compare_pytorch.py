#!/usr/bin/env python3
"""compare_pytorch.py LOCKSTEP OUTPUT.json: compares the training step with PyTorch's; reports the speed ratio and its spread.

One rank, all cores, SGD with momentum (PyTorch's fused where it has one), one generated batch; PyTorch's bf16 is its autocast. PyTorch runs in
up to three forms: default, tuned (channels_last, threads set and bound; tcmalloc preloaded if it is installed), and tuned with torch.compile. The
ratio of a row is to the fastest of all. Memory is counted without what a process has before the model exists (the import, the program with MPI). Lockstep also runs in two forms:
default, and with direct convolutions, the algorithm that PyTorch uses; --also adds builds with other libraries, in the default form. Each round runs
every program once, with as many steps of warm-up and measured steps; images/s are the measured samples by their total time. Ratios are computed
within a round, so that a slow phase of the machine affects both programs. The file records the CPU share
of other processes; the output marks rows where it exceeds 5 %.
"""

import json
import statistics

from harness import (DEFINITION, WARMUP, arguments, bench_step, best, comparison, in_turn, measured, note_of_others, others_in, parity_folder, peers, ratio,
                     shown, spread_of, write)

CASES = [
    # model, image size, channels, classes, width, batch, steps
    ("mini-resnet", 32, 3, 10, 64, 64, 8),
    ("resnet18", 224, 3, 1000, 64, 32, 4),
    ("resnet50", 224, 3, 1000, 64, 32, 3),
    ("vit_b_16", 224, 3, 1000, 0, 16, 3),
]

PEER = r"""
import json, resource, sys, time
import torch, torchvision

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

imported = peak()
sys.path.insert(0, sys.argv[1])
model, size, channels, classes, width, batch, steps, warmup, threads, precision, form = json.loads(sys.argv[2])
if model == "mini-resnet":
    sys.argv = [sys.argv[0]]
    from pytorch_parity import MiniResNet
    net = MiniResNet(channels, classes, width)
else:
    net = getattr(torchvision.models, model)(num_classes=classes)
images, labels = torch.randn(batch, channels, size, size), torch.randint(classes, (batch,))
if threads:
    torch.set_num_threads(threads)
    net, images = net.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
rule = dict(lr=0.01, momentum=0.9, weight_decay=1e-4)
try:
    sgd = torch.optim.SGD(net.parameters(), fused=True, **rule)
except (TypeError, RuntimeError):
    sgd = torch.optim.SGD(net.parameters(), **rule)
if form == "compiled":
    net = torch.compile(net)
loss = torch.nn.CrossEntropyLoss()
for step in range(warmup + steps):
    if step == warmup:
        begin = time.perf_counter()
    sgd.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        value = loss(net(images), labels)
    value.backward()
    sgd.step()
print(json.dumps({"images_per_second": batch * steps / (time.perf_counter() - begin),
                  "peak_rss_bytes": peak(), "start_rss_bytes": imported,
                  "threads": torch.get_num_threads(), "version": torch.__version__}))
"""


def lockstep(program, case, precision, **more):
    model, size, channels, classes, width, batch, steps = case
    return measured(bench_step(program, model=model, image_size=size, channels=channels, classes=classes, width=width, batch_size=batch,
                               precision=precision, steps=steps, warmup=WARMUP, input="batch", **more))


def mebibytes(runs):
    return round(statistics.median(run["peak_rss_bytes"] - run["start_rss_bytes"] for run in runs) / 2**20)


def described(runs):
    """Summarises the runs of one form of Lockstep."""
    return {"engine": runs[0]["engine"], "images_per_second": spread_of(runs, "images_per_second"), "peak_mib": mebibytes(runs),
            **{f"{part}_mib": round(runs[0][f"{part}_bytes"] / 2**20) for part in ("activation", "state")}}


def beside(ours, peer, runs):
    """Summarises the runs of one PyTorch form."""
    return {"pytorch": runs[0]["version"], "form": peer.form, "threads": runs[0]["threads"],
            "images_per_second": spread_of(runs, "images_per_second"), "ratio": ratio(ours["auto"], runs), "peak_mib": mebibytes(runs),
            "peak_memory_ratio": mebibytes(ours["auto"]) / mebibytes(runs),
            "other_ratios": {form: ratio(ours[form], runs) for form in ours if form != "auto"}}


def main():
    parser = arguments(__doc__, 3, CASES)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--python", action="append", help="a Python with PyTorch to compare with; may be repeated (default: /usr/bin/python3)")
    parser.add_argument("--also", action="append", default=[], help="the program of another build; may be repeated")
    options = parser.parse_args()
    forms = {"auto": (options.lockstep, {}), "direct": (options.lockstep, {"conv_algorithm": "direct"}), **{program: (program, {}) for program in options.also}}
    beside_it = peers(options.python or ["/usr/bin/python3"], compiled=True)
    result = comparison("step beside PyTorch", options, definition=DEFINITION, warmup=WARMUP, precision=options.precision, rows=[])
    for case in CASES:
        if case[0] not in options.models:
            continue
        runs = in_turn(options.rounds, {
            **{form: lambda program=program, more=more: lockstep(program, case, options.precision, **more) for form, (program, more) in forms.items()},
            **{peer: lambda peer=peer: peer.run(PEER, parity_folder(), json.dumps([*case, WARMUP, peer.threads, options.precision, peer.form])) for peer in beside_it}})
        others = others_in(runs.values())
        ours, theirs = {form: runs[form] for form in ("auto", "direct")}, [runs[peer] for peer in beside_it]
        ours.update({runs[program][0]["engine"].split(",")[0]: runs[program] for program in options.also})
        result.update(machine=ours["auto"][0]["machine"], engine=ours["auto"][0]["engine"])
        row = {"model": case[0], "image_size": case[1], "batch": case[5], "others_share_of_machine": others,
               "lockstep": {form: described(runs) for form, runs in ours.items()},
               "peers": [beside(ours, peer, runs) for peer, runs in zip(beside_it, theirs)]}
        row["best"] = best(row["peers"])
        result["rows"].append(row)
        rates = ", ".join(f"{form} {values['images_per_second']['median']:.1f}" for form, values in row["lockstep"].items())
        print(f"{case[0]} b{case[5]} {options.precision}: Lockstep's images/s: {rates}; {row['lockstep']['auto']['peak_mib']} MiB{note_of_others(others)}")
        for peer in row["peers"]:
            more = "".join(f"   {form} {shown(ratio)}" for form, ratio in peer["other_ratios"].items())
            mark = "   <- the best" if peer is row["best"] else ""
            print(f"  of PyTorch {peer['pytorch']} {peer['form']:<8} ({peer['images_per_second']['median']:.1f} images/s): "
                  f"{shown(peer['ratio'])}{more}   memory {peer['peak_memory_ratio']:.2f}{mark}", flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
