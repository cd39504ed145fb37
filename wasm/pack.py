"""Makes a linked module smaller, for gzip above all: python pack.py LINKED OUT

Functions whose names are alike come to stand together: kernels of float and of double are alike, and gzip looks 32 KB back.
Functions that are the same become one; their places in the table stay apart, so that pointers to them stay unequal. Numbers
take the bytes that they need: the linker leaves five for each that it fills in. Names go.
"""

import pathlib
import sys


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def number(self, signed=False):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def text(self):
        return self.take(self.number())


def number(value, signed=False):
    parts = bytearray()
    while True:
        byte, value = value & 127, value >> 7
        last = value == (-1 if byte & 64 else 0) if signed else value == 0
        parts.append(byte if last else byte | 128)
        if last:
            return bytes(parts)


# What follows an instruction: u and s are numbers without and with a sign, a digit that many bytes, t a list of numbers and one
# more, v a list of numbers, f a function. All others have nothing.
FOLLOWS = {
    **dict.fromkeys([0x02, 0x03, 0x04, 0x41, 0x42], "s"),
    **dict.fromkeys([0x0C, 0x0D, *range(0x20, 0x27), 0x3F, 0x40, 0xD0], "u"),
    **dict.fromkeys([0x11, *range(0x28, 0x3F)], "uu"),
    **{0x0E: "t", 0x1C: "v", 0x43: "4", 0x44: "8", 0x10: "f", 0xD2: "f"},
}
FOLLOWS_FC = {8: "uu", 9: "u", 10: "uu", 11: "u", 12: "uu", 13: "u", 14: "uu", 15: "u", 16: "u", 17: "u"}  # memory and tables
FOLLOWS_FD = {  # vectors
    **dict.fromkeys([*range(12), 92, 93], "uu"),
    **dict.fromkeys(range(21, 35), "1"),
    **dict.fromkeys(range(84, 92), "uu1"),
    **{12: "88", 13: "88"},
}
PLAIN = {0x00, 0x01, 0x05, 0x0B, 0x0F, 0x1A, 0x1B, *range(0x45, 0xC5), 0xD1}


def instructions(code, parts):
    """Appends to parts what code has up to its end: bytes, and functions as int."""
    while code.at < len(code.data):
        start = code.take(1)
        kind = start[0]
        if kind in (0xFC, 0xFD):
            further = code.number()
            start += number(further)
            follows = (FOLLOWS_FC if kind == 0xFC else FOLLOWS_FD).get(further, "")
        else:
            assert kind in FOLLOWS or kind in PLAIN, hex(kind)
            follows = FOLLOWS.get(kind, "")
        parts.append(start)
        for one in follows:
            if one == "f":
                parts.append(code.number())
            elif one in "us":
                parts.append(number(code.number(one == "s"), one == "s"))
            elif one in "tv":
                count = code.number()
                parts.append(number(count) + b"".join(number(code.number()) for _ in range(count + (one == "t"))))
            else:
                parts.append(code.take(int(one)))


def joined(parts):
    """Neighbouring bytes as one."""
    result = []
    for part in parts:
        if result and isinstance(part, bytes) and isinstance(result[-1], bytearray):
            result[-1] += part
        else:
            result.append(bytearray(part) if isinstance(part, bytes) else part)
    return tuple(bytes(part) if isinstance(part, bytearray) else part for part in result)


def packed(module):
    whole = Reader(module)
    head, sections, names = whole.take(8), {}, {}
    while whole.at < len(module):
        kind, content = whole.take(1)[0], Reader(whole.text())
        if kind != 0:
            sections[kind] = content
        elif content.text() == b"name":
            while content.at < len(content.data):
                part, inner = content.take(1)[0], Reader(content.text())
                if part == 1:  # of functions
                    names = {inner.number(): inner.text() for _ in range(inner.number())}
    imported = 0
    imports = sections[2]
    for _ in range(imports.number()):
        imports.text(), imports.text()
        assert imports.take(1) == b"\0"  # a function
        imports.number()
        imported += 1

    types = [sections[3].number() for _ in range(sections[3].number())]
    bodies = []
    for _ in range(sections[10].number()):
        code, parts = Reader(sections[10].text()), []
        for _ in range(code.number()):
            parts.append(number(code.number()) + code.take(1))  # variables
        parts.insert(0, number(len(parts)))
        instructions(code, parts)
        bodies.append(joined(parts))

    # The same, where what they call is the same.
    one = list(range(imported + len(bodies)))
    while True:
        found, before = {}, list(one)
        for i, body in enumerate(bodies):
            key = types[i], tuple(before[part] if isinstance(part, int) else part for part in body)
            one[imported + i] = found.setdefault(key, imported + i)
        if one == before:
            break
    kept = sorted({place for place in one[imported:]}, key=lambda place: (names.get(place, b""), place))
    place_of = {place: imported + k for k, place in enumerate(kept)} | {place: place for place in range(imported)}
    now = [place_of[place] for place in one]

    def body_of(place):
        return b"".join(number(now[part]) if isinstance(part, int) else part for part in bodies[place - imported])

    def listed(parts):
        return number(len(parts)) + b"".join(parts)

    def exports(content):
        parts = []
        for _ in range(content.number()):
            name, kind, place = content.text(), content.take(1), content.number()
            parts.append(number(len(name)) + name + kind + number(now[place] if kind == b"\0" else place))
        return listed(parts)

    def elements(content):
        parts = []
        for _ in range(content.number()):
            assert content.number() == 0 and content.take(1) == b"\x41"  # functions from a place that is a constant
            start = content.number(signed=True)
            assert content.take(1) == b"\x0b"
            functions = [number(now[content.number()]) for _ in range(content.number())]
            parts.append(b"\0\x41" + number(start, signed=True) + b"\x0b" + listed(functions))
        return listed(parts)

    result = bytearray(head)
    for kind, content in sections.items():
        content.at = 0
        if kind == 3:
            data = listed([number(types[place - imported]) for place in kept])
        elif kind == 7:
            data = exports(content)
        elif kind == 8:
            data = number(now[content.number()])
        elif kind == 9:
            data = elements(content)
        elif kind == 10:
            data = listed([number(len(body)) + body for body in map(body_of, kept)])
        else:
            data = content.data
        result += bytes([kind]) + number(len(data)) + data
    return bytes(result)


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_bytes(packed(pathlib.Path(sys.argv[1]).read_bytes()))
