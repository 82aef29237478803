"""The paper's tables and figures: runs that are trained, evaluated and recorded, and the paper's values beside ours.

`registry` lists them by name. `campaign` makes what runs are missing, one after the other, and leaves a record of each;
tables and pictures are made from records alone, but for samples, which need the models.
"""
