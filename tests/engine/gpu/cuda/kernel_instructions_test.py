"""scripts/kernel-instructions finds what it looks for, in machine code written for this test."""

import importlib.machinery
import pathlib
import sys
import types

SCRIPTS = pathlib.Path(__file__).parents[4] / "scripts"
sys.path.insert(0, str(SCRIPTS))
loader = importlib.machinery.SourceFileLoader("kernel_instructions", str(SCRIPTS / "kernel-instructions"))
script = types.ModuleType(loader.name)
loader.exec_module(script)


def kernel(*lines):
    address = 0
    text = ""
    for line in lines:
        if line.endswith(":"):
            text += f"{line}\n"
        else:
            text += f"        /*{address:04x}*/                   {line} ;\n"
            address += 16
    return script.Kernel("sm_90a", "name", text)


def split(*lines):
    counts = kernel(*lines, "EXIT").split
    return counts["load"], counts["store"]


def load(offset, operation="LDG.E", base="R2.64"):
    return f"{operation} R8, desc[UR4][{base}+0x{offset:x}]"


def test_adjacent_accesses():
    words = [load(4 * i) for i in (2, 0, 3, 1)]
    assert split(*words) == (1, 0)
    assert split(*[load(16 + 8 * i, "LDG.E.64") for i in range(2)]) == (1, 0)
    assert split(*[load(i, "LDG.E.U8") for i in range(16)]) == (1, 0)
    assert split(*[f"STG.E desc[UR4][R2.64+0x{4 * i:x}], R{i}" for i in range(4)]) == (0, 1)
    assert split(*[load(i, "LDG.E.128") for i in (0, 16)]) == (0, 0)


def test_generic_addresses_and_those_in_uniform_registers():
    assert split(*[load(4 * i, "LD.E") for i in range(4)]) == (1, 0)
    assert split(*[f"ST.E [R2.64+0x{4 * i:x}], R{i}" for i in range(4)]) == (0, 1)
    words = [load(4 * i, base="UR6.64") for i in range(4)]
    assert split(*words) == (1, 0)
    assert split(*words[:2], "UIADD3 UR7, UR7, UR8, URZ", *words[2:]) == (0, 0)
    assert split(*[f"STG.E [UR6+0x{4 * i:x}], R{i}" for i in range(4)]) == (0, 1)
    assert kernel("LD.E.64 R8, [R2.64]", "ST.E.U8 [R2.64], R8", "EXIT").rounds == [(0, [8, 1])]


def test_accesses_that_one_cannot_replace():
    words = [load(4 * i) for i in range(4)]
    assert split(*words[:3]) == (0, 0)
    assert split(*words[:2], ".L_x_1:", *words[2:]) == (0, 0)
    assert split(*words[:2], "IADD3 R2, P0, R2, 0x10, RZ", *words[2:]) == (0, 0)
    assert split(*words[:2], "IADD3.X R3, R3, RZ, RZ, P0, !PT", *words[2:]) == (0, 0)
    assert split(*words[:2], "IMAD.MOV.U32 R4, RZ, RZ, RZ", *words[2:]) == (1, 0)
    assert split(*[f"@P{i % 2} {word}" for i, word in enumerate(words)]) == (0, 0)
    assert split(*[load(4 * i, "LDG.E.CONSTANT" if i == 3 else "LDG.E") for i in range(4)]) == (0, 0)


def test_conditions_of_accesses():
    words = [f"@P0 {load(4 * i)}" for i in range(4)]
    for reads in ("SEL R9, R10, P0", "IADD3.X R9, R10, RZ, RZ, P0, !PT", "IMAD.X R9, RZ, RZ, R10, P0", "SEL R9, R10, R11, !P0",
                  "PLOP3.LUT P1, PT, P0, P2, PT, 0x80, 0x8", "ISETP.NE.AND P1, PT, R2, R10, P0", "FCHK P1, R2, R9"):
        assert split(*words[:2], reads, *words[2:]) == (1, 0), reads
    for writes in ("ISETP.NE.AND P0, PT, R9, R10, PT", "ISETP.NE.AND P1, P0, R9, R10, PT", "IADD3 R9, P0, R10, 0x10, RZ",
                   "IADD3 R9, P1, P0, R10, R11, R12", "LOP3.LUT P0, RZ, R9, 0x1, RZ, 0xc0, !PT", "PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x8"):
        assert split(*words[:2], writes, *words[2:]) == (0, 0), writes


DIVISION = ("MUFU.RCP64H R5, R7", "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_rn_f64_full)")
SUBROUTINE = ("$__internal_0_$__cuda_sm20_div_rn_f64_full:", "MUFU.RCP64H R3, R2", "RET.REL.NODEC R4 `(kernel)")


def divisions(*lines):
    return {depth: count for depth, count in kernel(*lines).divisions.items() if count}


def test_divisions_in_loops():
    assert divisions(*DIVISION, "EXIT", *SUBROUTINE) == {}
    assert divisions(".L_x_1:", *DIVISION, "@P0 BRA `(.L_x_1)", "EXIT", *SUBROUTINE) == {1: 1}
    assert divisions(".L_x_1:", "MUFU.RSQ64H R5, R7", "BRA P1, `(.L_x_1)", "EXIT") == {1: 1}
    assert divisions(".L_x_1:", DIVISION[1], "@P0 BRA `(.L_x_1)", "EXIT", *SUBROUTINE) == {1: 1}
    inner = (".L_x_2:", *DIVISION, "@P0 BRA `(.L_x_2)")
    assert divisions(".L_x_1:", "NOP", *inner, *DIVISION, "@P1 BRA `(.L_x_1)", "EXIT", *SUBROUTINE) == {1: 1, 2: 1}
    # In a block after the loop's last jump back, which returns to the loop.
    apart = divisions(".L_x_1:", "@P1 BRA `(.L_x_3)", ".L_x_2:", "@P0 BRA `(.L_x_1)", "EXIT", ".L_x_3:", *DIVISION, "BRA `(.L_x_2)", *SUBROUTINE)
    assert apart == {1: 1}
    # A call that leaves the inner loop.
    called = (".L_x_2:", *DIVISION, "@P0 CALL.REL.NOINC `(.L_x_3)", "BRA `(.L_x_2)", ".L_x_3:")
    assert divisions(".L_x_1:", "NOP", *called, "@P1 BRA `(.L_x_1)", "EXIT", *SUBROUTINE) == {2: 1}
    # In a block of the loop after the last EXIT, with a barrier that is used again after the loop.
    reused = (".L_x_1:", "BSSY B0, `(.L_x_2)", "@P0 BRA `(.L_x_4)", "BSYNC B0", ".L_x_2:", "@P1 BRA `(.L_x_1)",
              "BSSY B0, `(.L_x_3)", "BSYNC B0", ".L_x_3:", "EXIT", ".L_x_4:", *DIVISION, "BSYNC B0", *SUBROUTINE)
    assert divisions(*reused) == {1: 1}
    # The same, with another barrier, and a region of it, in the region of the first.
    nested = (".L_x_1:", "BSSY B0, `(.L_x_5)", "BSSY B1, `(.L_x_2)", "@P2 BRA `(.L_x_6)", "BSYNC B1",
              ".L_x_2:", "@P0 BRA `(.L_x_4)", "BSYNC B0", ".L_x_5:", "@P1 BRA `(.L_x_1)",
              "BSSY B1, `(.L_x_3)", "BSYNC B1", ".L_x_3:", "EXIT",
              ".L_x_4:", "BSSY B1, `(.L_x_7)", "BSYNC B1", ".L_x_7:", *DIVISION, "BSYNC B0",
              ".L_x_6:", DIVISION[0], "BSYNC B1", *SUBROUTINE)
    assert divisions(*nested) == {1: 2}
    # A jump back that is no loop.
    back = divisions("@P0 BRA `(.L_x_2)", ".L_x_1:", *DIVISION, "EXIT", ".L_x_2:", "BRA `(.L_x_1)", *SUBROUTINE)
    assert back == {}


def test_barriers_without_one_target():
    for lines in (("@P0 BRA `(.L_x_1)", "BSSY B0, `(.L_x_2)", "BRA `(.L_x_3)", ".L_x_1:", "BSSY B0, `(.L_x_4)", ".L_x_3:", "BSYNC B0"),
                  ("@P0 BRA `(.L_x_3)", "BSSY B0, `(.L_x_2)", ".L_x_3:", "BSYNC B0"),
                  ("BSSY B0, `(.L_x_2)", "BMOV.32 B0, R4", "BSYNC B0"),
                  ("BSSY B0, `(.L_x_2)", "@P0 BSSY B0, `(.L_x_4)", "BSYNC B0")):
        try:
            kernel(*lines, ".L_x_2:", "NOP", ".L_x_4:", "EXIT")
        except SystemExit as error:
            assert "BSYNC B0" in str(error), error
        else:
            raise AssertionError(lines)


def test_bytes_of_an_item_and_of_a_round():
    found = kernel(
        ".L_x_1:", load(0, "LDG.E.128"), "@P0 BRA `(.L_x_2)", load(16, "LDG.E.64"), "BRA `(.L_x_3)", ".L_x_2:", load(16), ".L_x_3:",
        load(32), "STG.E.128 desc[UR4][R4.64], R8", "@P1 BRA `(.L_x_3)", "STG.E.U8 desc[UR4][R4.64], R8", "@P2 BRA `(.L_x_1)", "EXIT")
    assert found.rounds == [(0, [0, 0]), (1, [24, 1]), (2, [4, 16])]


def test_local_memory():
    item = ("STL.64 [R1], R4", ".L_x_1:", "LDL.64 R4, [R1]")
    assert kernel(*item, "@P1 BRA `(.L_x_1)", "EXIT").local == 0
    assert kernel(*item, ".L_x_2:", "LDL R4, [R1]", "@P0 BRA `(.L_x_2)", "@P1 BRA `(.L_x_1)", "EXIT").local == 1


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
