"""What a save has to bring back: kept by the run that saves, looked for by the one that resumes."""
