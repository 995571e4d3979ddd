"""What runs inside the sandbox, in a fresh interpreter: standard library only, nothing of prorl but itself."""
