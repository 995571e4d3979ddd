"""What runs behind the wall, in a fresh interpreter: standard library only, nothing of prorl but itself."""
