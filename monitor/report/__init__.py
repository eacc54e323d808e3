"""What happened in a run, as one file to send: `regimescope report RUN|LOG -o report.html|.md|.json`, and
`regimescope compare A B`.

    gather.py    what is told, from a run that was read     html.py, markdown.py    how it is told
    charts.py    curves as SVG                              command.py              the commands

Nothing runs in the file: no script, no address is fetched, all text of a run is escaped.
"""
