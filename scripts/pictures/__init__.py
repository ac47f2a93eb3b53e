"""The pictures of the documentation: `make screenshots` writes them into docs/images.

__main__.py   which pictures there are
shop.py       the workflows of a shop
past.py       what happened in the shop in the last hour, with a clock set by hand
window.py     the shop at work, behind a server, and the browser that takes pictures of its viewer
recording.py  a program run in a terminal: what it printed, and when
animation.py  a recording as an animated SVG
"""
