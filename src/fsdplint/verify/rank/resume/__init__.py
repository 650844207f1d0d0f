"""The state at a save: recorded by the run that saves, compared by the run that resumes."""
