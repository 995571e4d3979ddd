"""What runs on the other side of the wall: standard library only, and nothing of prorl but itself.

The parent never imports these modules for their effects; it executes `server.main` in a fresh interpreter.
"""
