"""Pictures, one per file: model, data or a run's metrics -> table -> picture.

Tables hold what a picture shows, for checks and for pictures of one's own. Pictures go through matplotlib's objects,
never through pyplot, so that drawing changes nothing outside the file it writes.
"""
