"""Charts as inline SVG whose colors are the page's: they turn with light and dark."""
