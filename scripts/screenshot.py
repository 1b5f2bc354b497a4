#!/usr/bin/env python3
"""Draws what `tmux capture-pane -e -p` printed (standard input) as a PNG: screenshot.py OUT.png

Needs Pillow and a monospaced font. The pictures in the README were made with it, from real runs.
"""

import re
import sys

from PIL import Image, ImageDraw, ImageFont

FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono{}.ttf"
SIZE, MARGIN = 20, 24
BACKGROUND, TEXT, DIM = "#1d2129", "#d8dee9", "#7b8494"
COLOURS = ["#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9"]
ESCAPE = re.compile("\x1b\\[([0-9;]*)m")
# Shift-out and shift-in, and the charset that tmux switches with them.
CHARSET = re.compile("[\x0e\x0f]|\x1b[()][0AB]")


class Style:
    """How letters look; kept from one line to the next, as a terminal does."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.bold = self.dim = self.reverse = self.underline = False
        self.colour = None

    def take(self, codes):
        codes = [int(code or 0) for code in codes.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.reset()
            elif code in (1, 2, 4, 7):
                setattr(self, {1: "bold", 2: "dim", 4: "underline", 7: "reverse"}[code], True)
            elif code == 22:
                self.bold = self.dim = False
            elif code in (24, 27):
                setattr(self, {24: "underline", 27: "reverse"}[code], False)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = COLOURS[code % 10]
            elif code == 38 and codes[:1] == [5]:
                self.colour = COLOURS[codes[1] % 8]
                codes = codes[2:]
            elif code == 39:
                self.colour = None

    def paints(self):
        ink = self.colour or (DIM if self.dim else TEXT)
        return (BACKGROUND, ink) if self.reverse else (ink, None)


def main():
    text = CHARSET.sub("", sys.stdin.read()).rstrip()
    lines = text.split("\n")
    plain = ImageFont.truetype(FONTS.format(""), SIZE)
    heavy = ImageFont.truetype(FONTS.format("-Bold"), SIZE)
    width, height = plain.getlength("M"), int(SIZE * 1.4)
    columns = max(len(ESCAPE.sub("", line)) for line in lines)
    size = (int(2 * MARGIN + columns * width), 2 * MARGIN + len(lines) * height)
    image = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(image)
    style = Style()
    for row, line in enumerate(lines):
        column = 0
        for i, piece in enumerate(ESCAPE.split(line)):
            if i % 2 == 1:
                style.take(piece)
                continue
            if not piece:
                continue
            ink, ground = style.paints()
            left, top = MARGIN + column * width, MARGIN + row * height
            right = left + len(piece) * width
            if ground:
                draw.rectangle((left, top, right - 1, top + height - 1), fill=ground)
            for k, letter in enumerate(piece):
                at = (left + k * width, top)
                if "▁" <= letter <= "█":
                    # Blocks fill their cell from its lower edge, without a gap to the next.
                    high = round((ord(letter) - ord("▁") + 1) / 8 * height)
                    box = (at[0], top + height - high, at[0] + width - 1, top + height - 1)
                    draw.rectangle(box, fill=ink)
                else:
                    draw.text(at, letter, font=heavy if style.bold else plain, fill=ink)
            if style.underline:
                draw.line((left, top + height - 2, right, top + height - 2), fill=ink)
            column += len(piece)
    image.save(sys.argv[1], optimize=True)


main()
