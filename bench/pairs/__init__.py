"""Speed before and after a change: a commit and this folder, in turns."""
