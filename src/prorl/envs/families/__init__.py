"""The generated families: three files of compact ones, and reasoning-gym."""
