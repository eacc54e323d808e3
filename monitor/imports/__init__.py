"""Other people's logs: read by content, mapped to our names by one table of aliases, written as a run folder.

    reader = open_log(path)              formats.py    which format it is; a reader yields `LogRow`s as the log has them
    Mapper(...).map(row)                 mapping.py    their keys -> ours, by aliases.csv
    write_run(folder, reader, mapper)    write.py      steps, launches, segments: then it is a run like any other

Nothing of a log is taken for code or markup. Standard library, but for Parquet dumps of rollouts (pyarrow).
"""
