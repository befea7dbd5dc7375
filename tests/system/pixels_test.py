#!/usr/bin/env python3
"""Compares the pixels that `lockstep pack` writes with torchvision's ImageFolder, which is Pillow's convert("RGB")."""

import io
import itertools
import struct
import zlib

from harness import *  # noqa: F403

try:
    from PIL import Image, ImageCms
except ImportError as missing:
    print(f"skipped: {missing} (install python3-pil)")
    sys.exit(77)

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
VALUES = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}  # of a pixel
DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGBA: (8, 16)}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed_row(row, bits):
    """The bytes of a row (width, values)."""
    if bits == 16:
        return row.astype(">u2").tobytes()
    if bits == 8:
        return row.astype("u1").tobytes()
    shifts = np.arange(bits)[::-1]
    return np.packbits((row.reshape(-1, 1) >> shifts & 1).astype("u1")).tobytes()


def paeth(a, b, c):
    p = a + b - c
    return min((a, b, c), key=lambda value: abs(p - value))


def filtered(rows, step):
    """Rows with all five filters in turn; `step` is the bytes of a pixel."""
    result, above = b"", bytes(len(rows[0]))
    for y, row in enumerate(rows):
        kind = y % 5
        result += bytes([kind])
        for i, value in enumerate(row):
            a = row[i - step] if i >= step else 0
            c = above[i - step] if i >= step else 0
            result += bytes([value - (0, a, above[i], (a + above[i]) // 2, paeth(a, above[i], c))[kind] & 255])
        above = row
    return result


def png(pixels, bits, colour, before=b"", interlaced=False, after=b""):
    """A PNG file of pixels (height, width, values); `before` and `after` are chunks around the pixels."""
    height, width, values = pixels.shape
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b""
    for top, left, down, right in passes if interlaced else [(0, 0, 1, 1)]:
        part = pixels[top::down, left::right]
        if part.size:
            raw += filtered([packed_row(row, bits) for row in part], max(1, bits * values // 8))
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(raw)) + after
            + chunk(b"IEND", b""))


def palette_chunk(random, bits):
    return chunk(b"PLTE", random.integers(0, 256, 3 << bits, dtype="u1").tobytes())


def png_files(size):
    """Files of every kind by name."""
    random = np.random.default_rng(size)
    profile = chunk(b"iCCP", b"name\0\0" + zlib.compress(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()))
    more = {"plain": b"", "gamma": chunk(b"gAMA", struct.pack(">I", 100000)), "srgb": chunk(b"sRGB", b"\0"), "profile": profile,
            "primaries": chunk(b"cHRM", struct.pack(">8I", *range(20000, 28000, 1000))), "text": chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**6)))}
    files = {}
    for colour, depths in DEPTHS.items():
        for bits in depths:
            transparent = {GREY: bytes(2), RGB: bytes(6), PALETTE: bytes([0, 128])}.get(colour)
            kinds = {**more, **({"transparent": None} if transparent else {})}
            for (kind, before), interlaced in itertools.product(kinds.items(), (False, True)):
                pixels = random.integers(0, 1 << bits, (size, size, VALUES[colour]))
                palette = palette_chunk(random, bits) if colour == PALETTE else b""
                before = palette + chunk(b"tRNS", transparent) if before is None else before + palette
                files[f"{colour}-{bits}-{kind}-{'interlaced' if interlaced else 'rows'}"] = png(pixels, bits, colour, before, interlaced)
    pixels = random.integers(0, 256, (size, size, 3))
    control, frame = chunk(b"acTL", struct.pack(">II", 2, 0)), struct.pack(">IIIIHHBB", size, size, 0, 0, 1, 10, 0, 0)
    second = chunk(b"fdAT", struct.pack(">I", 2) + zlib.compress(filtered([bytes(3 * size)] * size, 3)))
    files["animated"] = png(pixels, 8, RGB, control + chunk(b"fcTL", struct.pack(">I", 0) + frame),
                            after=chunk(b"fcTL", struct.pack(">I", 1) + frame) + second)
    return files


def converted(file):
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def packed(folder, files, size):
    """The packed pixels of files of size x size pixels, by name."""
    for name, file in files.items():
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / "image").with_suffix(".png" if file[1:4] == b"PNG" else ".jpg").write_bytes(file)
    output = run(["pack", "--from", "folder", "--input", folder / "in", "--output", folder / "out", "--image-size", size])
    assert "libpng" not in output and "warning" not in output, output
    found = {}
    for shard in (folder / "out").glob("train-*.h5"):
        with h5py.File(shard) as shard_file:
            found.update(zip((sorted(files)[label] for label in shard_file["labels"]), shard_file["images"][...]))
    assert len(found) == len(files)
    return found


def png_files_of_every_kind_have_the_pixels_of_image_folder(folder):
    for size in (1, 5, 13):
        files = png_files(size)
        for name, pixels in packed(folder / str(size), files, size).items():
            # Pillow clips 16-bit grey at 255, so that it is nearly white.
            if not name.startswith("0-16-"):
                assert np.array_equal(pixels, converted(files[name])), name


def sixteen_bits_of_grey_keep_the_high_byte(folder):
    pixels = np.arange(169).reshape(13, 13, 1) * 389
    files = {"grey": png(pixels, 16, GREY), "rgb": png(pixels.repeat(3, 2), 16, RGB)}
    for name, found in packed(folder, files, 13).items():
        assert np.array_equal(found, (pixels >> 8).repeat(3, 2)), name


def an_index_beyond_the_palette_is_black(folder):
    pixels = np.arange(169).reshape(13, 13, 1) % 4
    file = png(pixels, 8, PALETTE, chunk(b"PLTE", bytes([10, 20, 30, 40, 50, 60])))
    found = packed(folder, {"short": file}, 13)["short"]
    assert np.array_equal(found, np.array([[10, 20, 30], [40, 50, 60], [0, 0, 0], [0, 0, 0]])[pixels[..., 0]])


def what_does_not_change_the_pixels_may_be_invalid(folder):
    pixels = np.random.default_rng(2).integers(0, 256, (13, 13, 3))
    invalid = {"profile": (b"iCCP", b"\0\0\0nonsense"), "transparency": (b"tRNS", b"\0"), "gamma": (b"gAMA", b""), "text": (b"zTXt", b"key\0\0nonsense")}
    for name, found in packed(folder, {name: png(pixels, 8, RGB, chunk(*data)) for name, data in invalid.items()}, 13).items():
        assert np.array_equal(found, pixels), name


def damaged_png_files_are_refused(folder):
    pixels = np.random.default_rng(1).integers(0, 256, (13, 13, 3))
    whole = png(pixels, 8, RGB, chunk(b"tEXt", b"key\0some text"))
    places = {"checksum-of-header": 30, "checksum-of-text": whole.index(b"IDAT") - 6, "pixels": whole.index(b"IDAT") + 60,
              "checksum-of-pixels": whole.index(b"IEND") - 6}
    damaged = {name: whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:] for name, at in places.items()}
    damaged.update({f"cut-at-{size}": whole[:size] for size in (8, 20, 40, whole.index(b"IDAT") + 20, whole.index(b"IEND") - 7)})
    damaged["too-large"] = whole[:16] + b"\x7f\xff\xff\xff" + whole[20:]
    damaged["without-a-palette"] = png(pixels[..., :1], 8, PALETTE)
    for name, file in damaged.items():
        path = folder / name / "in" / "class" / "image.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(file)
        output = run(["pack", "--from", "folder", "--input", folder / name / "in", "--output", folder / name / "out", "--image-size", 13], expect=BAD_INPUT)
        assert output.count("lockstep: error: ") == 1 and str(path) in output and "PNG" in output and "libpng" not in output, f"{name}\n{output}"


def jpeg_files_of_every_kind_have_the_pixels_of_image_folder(folder):
    # Most pictures are of noise, so that each conversion shows; libjpeg is the same library.
    random = np.random.default_rng(3)
    images = {mode: Image.fromarray(random.integers(0, 256, (37, 37, *values), dtype="u1"), mode) for mode, values in
              {"L": (), "RGB": (3,), "CMYK": (4,)}.items()}
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"plain": {}, "progressive": {"progressive": True}, "exif": {"exif": exif.tobytes()}, "optimized": {"optimize": True},
               "profile": {"icc_profile": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()},
               "full": {"subsampling": 0}, "half": {"subsampling": 1}, "quarter": {"subsampling": 2}, "coarse": {"quality": 5}}
    files = {}
    for (mode, image), (name, option) in itertools.product(images.items(), options.items()):
        stream = io.BytesIO()
        image.save(stream, "JPEG", **option)
        files[f"{mode}-{name}"] = stream.getvalue()
    adobe = files["CMYK-plain"].index(b"\xff\xee")
    marker_bytes = 2 + int.from_bytes(files["CMYK-plain"][adobe + 2:adobe + 4], "big")
    files["CMYK-without-a-marker"] = files["CMYK-plain"][:adobe] + files["CMYK-plain"][adobe + marker_bytes:]
    transform = adobe + marker_bytes - 1
    files["YCCK"] = files["CMYK-plain"][:transform] + b"\2" + files["CMYK-plain"][transform + 1:]
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
    files["RGB-in-RGB"] = files["RGB-full"][:2] + marker + files["RGB-full"][20:]  # in place of the JFIF marker
    for name, pixels in packed(folder, files, 37).items():
        assert np.array_equal(pixels, converted(files[name])), name


def jpeg_files_of_twelve_bits_are_refused(folder):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG")
    file = bytearray(stream.getvalue())
    file[file.index(b"\xff\xc0") + 4] = 12
    path = folder / "in" / "class" / "image.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(file)
    output = run(["pack", "--from", "folder", "--input", folder / "in", "--output", folder / "out", "--image-size", 8], expect=BAD_INPUT)
    assert "precision 12" in output and str(path) in output, output


if __name__ == "__main__":
    main([png_files_of_every_kind_have_the_pixels_of_image_folder, sixteen_bits_of_grey_keep_the_high_byte, an_index_beyond_the_palette_is_black,
          what_does_not_change_the_pixels_may_be_invalid, damaged_png_files_are_refused, jpeg_files_of_every_kind_have_the_pixels_of_image_folder, jpeg_files_of_twelve_bits_are_refused])
