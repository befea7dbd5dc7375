"""Compares what the program reads as JSON with Python's json, over valid texts, damaged ones and random bytes."""

import json
import math
import random
import subprocess
import sys

PROGRAM = sys.argv[1]
RANDOM = random.Random(1)
REFUSED = object()
EDGES = [b"1e999", b"-1e999", b"1e-999", b"[1e308,4.9e-324,2.2250738585072011e-308,-0.0,-0,0.1,1E+2]", b"18446744073709551615",
         b"-9223372036854775808", b"18446744073709551616", b'{"a":1,"a":2}', b'{"a":1,"b":2,"a":[]}', b'"\\ud83d\\ude00"', b'"\\ud800"',
         b"NaN", b"[Infinity]", b"-Infinity", b"\xef\xbb\xbf[]", b'"\xff"', b'"\xc3\xa9"', b'"\xed\xa0\x80"', b'"\x7f"', b"", b" 1 ", b"\x0c1",
         b"[" * 32 + b"]" * 32]
LETTERS = b'{}[]":,\\/ \n\t0123456789eE+-.truefalsn\x00\x1f\x7f\x80\xc3\xa9\xff'


def some_value(depth=0):
    kind = RANDOM.randrange(7 if depth < 5 else 5)
    if kind == 0:
        return RANDOM.choice([None, True, False])
    if kind == 1:
        return RANDOM.randrange(-2**63, 2**64)
    if kind == 2:
        return RANDOM.uniform(-1, 1) * 10.0 ** RANDOM.randrange(-300, 300)
    if kind < 5:
        return "".join(chr(RANDOM.choice([RANDOM.randrange(128), RANDOM.randrange(0xd800), RANDOM.randrange(0xe000, 0x110000)]))
                       for _ in range(RANDOM.randrange(6)))
    if kind == 5:
        return [some_value(depth + 1) for _ in range(RANDOM.randrange(4))]
    return {str(some_value(5)): some_value(depth + 1) for _ in range(RANDOM.randrange(4))}


def damaged(text):
    text = bytearray(text)
    for _ in range(RANDOM.randrange(1, 4)):
        at = RANDOM.randrange(len(text) + 1)
        text[at:at + RANDOM.randrange(3)] = bytes(RANDOM.choices(LETTERS, k=RANDOM.randrange(3)))
    return bytes(text)


def refuse(_):
    raise ValueError


def bounded(text):
    """Python reads numbers beyond a double as infinite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def integer(text):
    return int(text) if -2**63 <= int(text) < 2**64 else float(text)


def expected(text):
    """REFUSED if Python refuses the text, or json.hpp names it as a difference."""
    try:
        value = json.loads(text.decode(), parse_constant=refuse, parse_float=bounded, parse_int=integer)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair has no UTF-8
    except ValueError:
        return REFUSED
    return value


def shown(value):
    return json.dumps(value, ensure_ascii=False)


texts = list(EDGES)
for _ in range(4000):
    good = json.dumps(some_value(), ensure_ascii=RANDOM.random() < 0.5, indent=RANDOM.choice([None, 1])).encode()
    texts += [good, damaged(good), bytes(RANDOM.choices(LETTERS, k=RANDOM.randrange(12)))]
result = subprocess.run([PROGRAM], input="\n".join(text.hex() for text in texts) + "\n", capture_output=True, text=True, check=True)
lines = result.stdout.split("\n")[:-1]
assert len(lines) == len(texts), (len(lines), len(texts))
refused = 0
for text, line in zip(texts, lines):
    value = expected(text)
    refused += value is REFUSED
    assert (line == "refused") == (value is REFUSED), (text, line, value)
    assert value is REFUSED or shown(json.loads(line)) == shown(value), (text, line, value)
print(f"{len(texts)} texts, {refused} of them refused")
assert 1000 < refused < len(texts) / 1.4, refused
