"""Where rollouts, verdicts and updates are computed, behind the protocols of `prorl.ports`."""
