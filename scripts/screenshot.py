#!/usr/bin/env python3
"""Draws what `tmux capture-pane -e -p` printed (standard input) as a PNG: screenshot.py OUT.png

Needs Pillow and a monospaced font. The picture in the README was made with it, from a real run.
"""

import re
import sys

from PIL import Image, ImageDraw, ImageFont

FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono{}.ttf"
SIZE, MARGIN = 20, 24
BACKGROUND, TEXT, DIM = "#1d2129", "#d8dee9", "#7b8494"
ESCAPE = re.compile("\x1b\\[([0-9;]*)m")


def spans(line):
    """Pieces of a line, each with whether it is bold and whether it is dim."""
    bold = dim = False
    for i, piece in enumerate(ESCAPE.split(line)):
        if i % 2 == 0:
            yield piece, bold, dim
            continue
        for code in piece.split(";"):
            if code in ("", "0"):
                bold = dim = False
            elif code == "22":
                bold = dim = False
            elif code == "1":
                bold = True
            elif code == "2":
                dim = True


def main():
    lines = sys.stdin.read().rstrip().split("\n")
    plain = ImageFont.truetype(FONTS.format(""), SIZE)
    heavy = ImageFont.truetype(FONTS.format("-Bold"), SIZE)
    width, height = plain.getlength("M"), int(SIZE * 1.4)
    columns = max(len(ESCAPE.sub("", line)) for line in lines)
    size = (int(2 * MARGIN + columns * width), 2 * MARGIN + len(lines) * height)
    image = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        column = 0
        for text, bold, dim in spans(line):
            at = (MARGIN + column * width, MARGIN + row * height)
            draw.text(at, text, font=heavy if bold else plain, fill=DIM if dim else TEXT)
            column += len(text)
    image.save(sys.argv[1], optimize=True)


main()
