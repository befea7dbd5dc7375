"""What kernel-resources and kernel-instructions share: NVIDIA's tools for machine code, kernels' names as in the source, and control flow."""

import collections
import concurrent.futures
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def tool(name):
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin", *(found for path in sys.path for found in glob.glob(f"{path}/nvidia/*/bin"))]
    found = shutil.which(name, path=":".join(places))
    if not found:
        print(f"skipped: {name} is not here (it reads the machine code of kernels); scripts/install-dependencies tests, or install CUDA's package of it")
        sys.exit(77)
    return found


def demangled(names):
    text = subprocess.run(["c++filt"], check=True, input="\n".join(names), stdout=subprocess.PIPE, text=True).stdout
    text = re.sub(r"lockstep::(gpu::)?|\(anonymous namespace\)::", "", text)
    return [re.sub(r"^void run_(items|blocks|rows)<(.*?) ?>\(.*", r"\2", name) for name in text.splitlines()]


def disassembled(library, architectures):
    """(architecture, mangled name, text) of each kernel for the architectures (empty: all) in an object, archive or module."""
    cuobjdump, nvdisasm = tool("cuobjdump"), tool("nvdisasm")

    def text_of(cubin):
        text = subprocess.run([nvdisasm, "-c", str(cubin)], check=True, stdout=subprocess.PIPE, text=True).stdout
        architecture = re.search(r"\.target\s+(\w+)", text)[1]
        return [(architecture, each.split(",")[0].strip('"'), each) for each in re.split(r"\n\s*\.section\s+\.text\.", text)[1:]]

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for architecture in architectures or ["all"]:
            subprocess.run([cuobjdump, "-xelf", architecture, str(pathlib.Path(library).resolve(strict=True))], check=True, cwd=folder,
                           stdout=subprocess.DEVNULL)
        return [kernel for kernels in pool.map(text_of, sorted(pathlib.Path(folder).glob("*.cubin"))) for kernel in kernels]


INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/ +(?:@(!?U?P\w+) +)?([A-Z]\w*(?:\.\w+)*)(.*?);")
Instruction = collections.namedtuple("Instruction", "condition operation operands")
TARGET = re.compile(r"`\((\S+)\)")
JUMP = re.compile(r"(?!BSSY).* `\(\.L")  # also a CALL, of a label in the kernel: compilers leave loops in this way


class Block:
    """Instructions without a jump between them, and the labels that come before them."""

    def __init__(self):
        self.labels = []
        self.instructions = []
        self.next = set()  # indices of the blocks that may follow
        self.depth = None  # number of loops around it; None: not reachable without a call


def basic_blocks(sass):
    blocks = [Block()]
    for line in sass.splitlines():
        label = re.match(r"(\S+):$", line)
        if label:
            if blocks[-1].instructions:
                blocks.append(Block())
            blocks[-1].labels.append(label[1])
        found = INSTRUCTION.search(line)
        if found:
            blocks[-1].instructions.append(Instruction(found[2], found[3], found[4]))
            if JUMP.match(found[3] + found[4]) or re.match(r"(BRX|JMP|JMX|EXIT|RET|BSYNC)\b", found[3]):
                blocks.append(Block())
    places = {label: i for i, block in enumerate(blocks) for label in block.labels}
    for i, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        kind = last.operation.split(".")[0] if last else ""
        conditional = last and (last.condition or (kind == "BRA" and not re.match(r" *`", last.operands)))
        if last and JUMP.match(last.operation + last.operands):
            block.next.add(places[TARGET.search(last.operands)[1]])
        elif kind in ("BRX", "JMP", "JMX"):
            sys.exit(f"a kernel has a jump by a table, which this script does not follow: {last}")
        if (conditional or kind not in ("BRA", "BSYNC", "EXIT", "RET")) and i + 1 < len(blocks):
            block.next.add(i + 1)
    follow_barriers(blocks, places)
    return blocks


def follow_barriers(blocks, places):
    """Adds the edge of each BSYNC, to the target that a BSSY has set for its barrier on all paths from the entry."""

    def barrier_of(instruction):
        return instruction.operands.split(",")[0].strip()

    synced = {barrier_of(each) for block in blocks for each in block.instructions if each.operation.startswith("BSYNC")}
    targets = {0: {barrier: {None} for barrier in synced}}  # labels by barrier, where each block begins; None: not set, or not known
    changed = [0]
    while changed:
        i = changed.pop()
        block, current = blocks[i], dict(targets[i])
        for instruction in block.instructions:
            kind, barrier = instruction.operation.split(".")[0], barrier_of(instruction)
            if kind in ("BSSY", "BMOV") and barrier in current:
                target = TARGET.search(instruction.operands)[1] if kind == "BSSY" else None
                current[barrier] = {target, *(current[barrier] if instruction.condition else ())}
            elif kind == "BSYNC":
                found = current[barrier]
                if len(found) > 1 or None in found:
                    labels = ", ".join(sorted(label or "none that is known" for label in found))
                    sys.exit(f"a kernel has a BSYNC {barrier} without one target on all paths to it (they set {labels}), so that this script "
                             "does not find its loops; extend follow_barriers in scripts/kernel_code.py")
                block.next.add(places[next(iter(found))])
        for other in block.next:
            before = targets.get(other, current)
            merged = {barrier: found | before[barrier] for barrier, found in current.items()}
            if merged != targets.get(other):
                targets[other] = merged
                changed.append(other)


def components(nodes, after):
    """Strongly connected components, each after the components that it leads to (Tarjan)."""
    number, low, stack, found = {}, {}, [], []
    for root in nodes:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        path = [(root, iter(after[root]))]
        while path:
            node, rest = path[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    path.append((other, iter(after[other])))
                    break
                if other in low:
                    low[node] = min(low[node], number[other])
            else:
                path.pop()
                if path and node in low:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    component = set()
                    while not component or node not in component:
                        component.add(stack.pop())
                    for each in component:
                        del low[each]
                    found.append(component)
    return found


def measure_loops(blocks, cost):
    """Sets the depth of each block, and returns the largest costs (vectors) of one pass, as [(depth, costs)]: of the code outside loops
    (depth 0), and of one round of each loop, without the loops in it."""
    rounds = []

    def measure(nodes, after, depth):
        most = {}
        place = len(rounds)
        rounds.append(None)
        for component in components(nodes, after):
            first = next(iter(component))
            own = None
            if len(component) > 1 or first in after[first]:
                entries = {node for node in component if node == 0 or any(node in after[other] for other in nodes - component)}
                inner = {node: (after[node] & component) - (entries or {min(component)}) for node in component}
                measure(component, inner, depth + 1)
            else:
                blocks[first].depth = depth
                own = cost(blocks[first])
            later = [most[other] for node in component for other in after[node] if other not in component]
            best = [max(costs) for costs in zip(*later)] or [0] * len(cost(Block()))
            for node in component:
                most[node] = [a + b for a, b in zip(own, best)] if own else best
        rounds[place] = (depth, [max(costs) for costs in zip(*most.values())])

    reachable, open_nodes = {0}, [0]
    while open_nodes:
        for other in blocks[open_nodes.pop()].next - reachable:
            reachable.add(other)
            open_nodes.append(other)
    measure(reachable, {node: blocks[node].next for node in reachable}, 0)
    return rounds
