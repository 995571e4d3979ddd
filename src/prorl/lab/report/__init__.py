"""Pictures and pages about runs, from their files alone: nothing here loads a model or imports torch."""
