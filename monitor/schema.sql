-- regimescope store, DuckDB 2.x. The monitor process owns the file; one file serves every run below a root folder.
-- The segments are the truth and this file is an index of them: it may be deleted and rebuilt at any time. There are no migrations: another
-- `meta.schema_hash` (of this file), or a storage version that DuckDB refuses = rebuild.
--   * Fact tables (scalar, bucket_step, ratio_hist, hist, step_done, rollout, event) have no PRIMARY KEY and no foreign keys: a key costs three
--     times the space, twice the load time. Exactly-once comes from the offset in `segment`, written in the same transaction.
--   * Sums and counts, never means or fractions: they add exactly over micro-batches, updates and ranks; fractions live in the views.
--   * Bounds are absolute weights [w_min, w_max]; no lower bound = 0, no upper bound = 'infinity'; eps_low and eps_high exist in views only.
--   * `update` NULL = the value belongs to the whole step. Key of a fact: run, launch, rank, step, update, slice and what it is about.
--   * `slice_id` 0 = everything. The slices of a kind are a breakdown of it, kinds are never crossed. A query names ONE slice, or it counts twice.
--   * Non-finite values are stored as they are.
--   * The views at the end are the public read contract: facts are read through them, or through the public query function.

CREATE TYPE bucket_kind AS ENUM ('R1', 'R2', 'R3', 'R4', 'pos_eq1', 'neg_eq1', 'zero_adv');

CREATE TABLE meta (schema_hash VARCHAR NOT NULL, app_version VARCHAR NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT now());   -- one row

-- == who wrote what ==
CREATE TABLE run (
    run_key       UINTEGER PRIMARY KEY,
    path          VARCHAR UNIQUE NOT NULL,      -- folder, relative to the root: the identity (a copied folder keeps its run_id)
    run_id VARCHAR NOT NULL, name VARCHAR,      -- as the header says
    status        VARCHAR NOT NULL CHECK (status IN ('running', 'ended', 'crashed', 'imported')),
    started_at TIMESTAMPTZ, last_row_at TIMESTAMPTZ, ended_at TIMESTAMPTZ,
    imported_from VARCHAR, wire_version INTEGER -- imported_from: format of a foreign log, NULL for our own segments
);

-- One start of the job, or one rollback inside it, all ranks together. A launch with first step s supersedes the older ones from s on:
-- their rows stay (they often hold the collapse), the views leave them out.
CREATE TABLE launch (
    run_key         UINTEGER NOT NULL,
    launch_no       USMALLINT NOT NULL,         -- 0, 1, … in order of start
    launch_id       VARCHAR NOT NULL,           -- shared by the ranks of one start; where two starts took the same, each is a launch
    started_by      VARCHAR,                    -- fresh | resume | rollback
    started_at TIMESTAMPTZ, ended_at TIMESTAMPTZ, end_reason VARCHAR,   -- finished | stopped | rollback | error | NULL = no end line
    state           VARCHAR,                    -- running | waiting_rollouts | paused | evaluating | checkpointing
    state_since TIMESTAMPTZ, last_row_at TIMESTAMPTZ,   -- last_row_at: any line of a rank, repeated `state` events too: the heartbeat
    first_step      UBIGINT NOT NULL,
    superseded_from UBIGINT,                    -- first step that a later launch repeats, NULL = none
    ranks           USMALLINT NOT NULL,         -- number of ranks that write segments
    framework VARCHAR, objective VARCHAR, config JSON,
    ratio_source    VARCHAR CHECK (ratio_source IN ('behaviour', 'proximal', 'infer')),   -- what r divides by
    eq_tol          DOUBLE,                     -- |log r| up to this counts as r = 1
    weight_rule     JSON,                       -- per sign: base (r | 1/r | s | 1), cap_low, cap_high, drop_below, drop_above
    effect_every    USMALLINT,                  -- the entropy effect runs on a random 1/k of the tokens
    limits          JSON,                       -- what the trainer accepts in a command
    start_revision  UBIGINT NOT NULL DEFAULT 0, start_bounds JSON,   -- in force at the start, as the header says
    capabilities    VARCHAR[],                  -- set_bounds, pause, stop, checkpoint, rollback, rollouts, entropy_effect, …
    PRIMARY KEY (run_key, launch_no)
);

CREATE TABLE slice (                            -- 0 ('all', '') is made with the run; at most 64 more
    run_key UINTEGER NOT NULL, slice_id UTINYINT NOT NULL CHECK (slice_id <= 64),
    kind VARCHAR NOT NULL, value VARCHAR NOT NULL,   -- kind: all | env (task, data source) | lag (0, 1, 2, 3-4, 5+), later others
    PRIMARY KEY (run_key, slice_id)
);

CREATE TABLE segment (                          -- progress of the tail, committed together with the rows it produced
    run_key     UINTEGER NOT NULL,
    segment     VARCHAR NOT NULL,               -- file name inside segments/
    launch_no USMALLINT, rank USMALLINT,        -- NULL for the monitor's own segment
    byte_offset UBIGINT NOT NULL, closed BOOLEAN NOT NULL DEFAULT false,     -- offset: just behind the last newline consumed
    last_seq UBIGINT, lost UBIGINT NOT NULL DEFAULT 0, bad_lines UBIGINT NOT NULL DEFAULT 0,   -- lost: holes in q
    dropped UBIGINT NOT NULL DEFAULT 0,         -- of the lost: what the recorder announced; the rest is missing from the file
    holes UBIGINT NOT NULL DEFAULT 0,           -- holes that no announcement follows at once
    bad_tail UBIGINT NOT NULL DEFAULT 0,        -- bad lines since the last good one: their numbers are no hole
    trace VARCHAR,                              -- of what was read: tells that a file was replaced by another of its name
    refused VARCHAR,                            -- why nothing more of this file is read: a wire version too new
    PRIMARY KEY (run_key, segment)
);

CREATE TABLE compaction (                       -- steps of a launch whose scalars lie sorted by slice, metric, step; no content of the segments
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, first_step UBIGINT NOT NULL, end_step UBIGINT NOT NULL   -- end: exclusive
);

-- == numbers ==
CREATE TABLE metric (
    metric_id UINTEGER PRIMARY KEY, name VARCHAR UNIQUE NOT NULL,   -- canonical name, else the source key as it came
    agg VARCHAR NOT NULL CHECK (agg IN ('mean', 'sum', 'min', 'max', 'last')),   -- how ranks combine
    unit VARCHAR, description VARCHAR
);

CREATE TABLE metric_source (                    -- which key of the log fed a canonical metric, and what was done to it
    run_key UINTEGER NOT NULL, metric_id UINTEGER NOT NULL, source_key VARCHAR NOT NULL,
    transform VARCHAR, trust VARCHAR            -- trust: exact | proxy | user; told once more by every launch and every start of a watch
);

CREATE TABLE scalar (
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, step UBIGINT NOT NULL, update USMALLINT,
    slice_id UTINYINT NOT NULL DEFAULT 0, ts TIMESTAMPTZ, metric_id UINTEGER NOT NULL, value DOUBLE,
    weight    DOUBLE NOT NULL DEFAULT 1         -- items behind a mean, so that means over ranks come out exact
);

CREATE TABLE bucket_step (                      -- seven rows per (run, launch, rank, step, update, slice), all written at once
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, step UBIGINT NOT NULL, update USMALLINT NOT NULL,
    slice_id UTINYINT NOT NULL DEFAULT 0, ts TIMESTAMPTZ,
    bucket bucket_kind NOT NULL, revision UBIGINT NOT NULL,
    w_min DOUBLE, w_max DOUBLE,                 -- active limits of this sign's weight rule; NULL for zero_adv
    tokens                UBIGINT NOT NULL,     -- valid tokens; padding is in no bucket
    clip_high UBIGINT NOT NULL, clip_low UBIGINT NOT NULL,   -- tokens whose weight differs from the rule's base because of that side
    clamped               UBIGINT NOT NULL DEFAULT 0,        -- tokens whose |log r| was cut to 20 before exp
    ratio_sum DOUBLE, weight_sum DOUBLE,        -- sum r; sum w (0 for a token whose gradient the objective drops)
    abs_adv_weight_sum DOUBLE, signed_adv_weight_sum DOUBLE, -- sum w|A|: gradient mass; sum wA: + or - the same, by the bucket's sign
    entropy_effect_sum    DOUBLE,               -- sum wA·c, first-order effect on entropy, over the sampled tokens; NULL where not measured
    entropy_effect_tokens UBIGINT,              -- tokens sampled for it: the views scale the sum to all tokens of the bucket
    entropy_sum DOUBLE, logp_sum DOUBLE, log_ratio_sum DOUBLE, log_ratio_sq_sum DOUBLE     -- nats; logp: logp_new
);

CREATE TABLE hist_edges (
    edges_id USMALLINT PRIMARY KEY, name VARCHAR NOT NULL,   -- 'lr1', …; the same name with other edges gets another edges_id
    edges    DOUBLE[] NOT NULL                  -- k ascending edges make k + 1 bins, the outer two open; bin i of 1 … k+1 is [edge i-1, edge i)
);

CREATE TABLE ratio_hist (                       -- over log r, one row per sign; r = 1 and A = 0 are buckets, not bins
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, step UBIGINT NOT NULL, update USMALLINT,
    slice_id UTINYINT NOT NULL DEFAULT 0, sign TINYINT NOT NULL CHECK (sign IN (-1, 1)), edges_id USMALLINT NOT NULL,
    counts UINTEGER[] NOT NULL, ratio_sum DOUBLE[] NOT NULL, abs_adv_sum DOUBLE[] NOT NULL,
    abs_adv_ratio_sum DOUBLE[]                  -- sum r|A|: makes a predicted gradient mass exact at bin edges
);

CREATE TABLE hist (                             -- any other histogram: response length, entropy, …
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, step UBIGINT NOT NULL, update USMALLINT,
    slice_id UTINYINT NOT NULL DEFAULT 0, metric_id UINTEGER NOT NULL, edges_id USMALLINT NOT NULL, counts UINTEGER[] NOT NULL
);

CREATE TABLE step_done (                        -- the `step` line: this rank is through with this step
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, step UBIGINT NOT NULL, ts TIMESTAMPTZ,
    seq UBIGINT                                 -- of the line: events before it belong to this step or an earlier one
);

-- == rollouts, events ==
CREATE TABLE rollout (                          -- the index; texts and token arrays stay in the Parquet file
    run_key UINTEGER NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, step UBIGINT NOT NULL,
    update INTEGER, sample_id BIGINT NOT NULL, group_id BIGINT,   -- update at which logp_new was taken; a group answers one prompt
    env VARCHAR, reward DOUBLE, advantage DOUBLE,   -- env: value of the `env` slice
    length INTEGER NOT NULL, repetition DOUBLE, correct BOOLEAN,   -- correct: the verifier's verdict; may disagree with the advantage's sign
    finish_reason VARCHAR,                      -- eos | length | aborted | infra (sandbox, verifier, time-out: no failure of the policy)
    pick VARCHAR,                               -- why it was kept: worst | best | random
    revision BIGINT, weight_version BIGINT, lag INTEGER,   -- at generation; lag: weight versions between generation and training
    file VARCHAR NOT NULL, row_in_file INTEGER NOT NULL    -- relative to the run folder
);

CREATE TABLE event (                            -- drops, states, checkpoints, notices; also kinds of a later wire version
    run_key UINTEGER NOT NULL, launch_no USMALLINT, rank USMALLINT, seq UBIGINT, ts TIMESTAMPTZ, step UBIGINT,
    kind VARCHAR NOT NULL, payload JSON
);

-- == findings and people ==
CREATE TABLE alert (                            -- written by the replay of the detectors: derived, replaced as a whole per run
    run_key UINTEGER NOT NULL, incident_id UUID NOT NULL,
    alert_id      UUID NOT NULL,                -- uuid5 of run path, launch_id, rule (and slice, if not 0), ordinal
    launch_no USMALLINT NOT NULL, signature VARCHAR NOT NULL, rule VARCHAR NOT NULL, rule_version VARCHAR NOT NULL,
    slice_id      UTINYINT NOT NULL DEFAULT 0,  -- the env slice it was found in
    ordinal       USMALLINT NOT NULL,           -- episode of this rule (and slice) in this launch, from 0
    severity      VARCHAR NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    driver        bucket_kind,                  -- the regime that drives it, where the evidence tells
    step_onset UBIGINT NOT NULL, step_detected UBIGINT NOT NULL, step_last UBIGINT NOT NULL,
    state         VARCHAR NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    opened_at TIMESTAMPTZ, score DOUBLE, direction VARCHAR,   -- opened_at: time of step_detected, the trainer's clock
    title VARCHAR, text VARCHAR, evidence JSON, remedy JSON,
    inhibited_by  VARCHAR,                      -- rule that explains this one; shown dimmed
    superseded    BOOLEAN NOT NULL DEFAULT false,   -- found in a stretch that a later launch repeats: history, not the run as it is
    PRIMARY KEY (run_key, alert_id)
);

CREATE TABLE mark (                             -- what people say about an alert or a step
    run_key UINTEGER NOT NULL, mark_id UUID NOT NULL, ts TIMESTAMPTZ NOT NULL, actor VARCHAR,
    kind       VARCHAR NOT NULL CHECK (kind IN ('acknowledge', 'snooze', 'false_alarm', 'confirmed', 'reopen', 'note')),
    alert_id UUID, signature VARCHAR, step UBIGINT,
    until_step UBIGINT, text VARCHAR,           -- a snooze names signature and until_step
    PRIMARY KEY (run_key, mark_id)              -- a copied folder repeats the ids of commands and marks
);

CREATE TABLE command (
    run_key UINTEGER NOT NULL, command_id UUID NOT NULL, launch_id VARCHAR NOT NULL,   -- version 7: sorts by time; other launches disobey
    issued_at TIMESTAMPTZ NOT NULL, not_after TIMESTAMPTZ NOT NULL, issuer VARCHAR,
    kind              VARCHAR NOT NULL,         -- set_bounds | pause | resume | stop | checkpoint | rollback
    args JSON, expected_revision UBIGINT, alert_id UUID, reason VARCHAR,
    PRIMARY KEY (run_key, command_id)
);

CREATE TABLE ack (
    run_key UINTEGER NOT NULL, command_id UUID NOT NULL, launch_no USMALLINT NOT NULL, rank USMALLINT NOT NULL, ts TIMESTAMPTZ,
    step       UBIGINT,                         -- applied: first step under the new bounds (after a rollback: in the new launch)
    status     VARCHAR NOT NULL CHECK (status IN ('received', 'applied', 'rejected', 'expired')),
    revision UBIGINT, applied JSON, message VARCHAR   -- in force after this answer; applied: effective values
);

-- == public views: superseded rows left out, ranks combined ==
CREATE VIEW v_scalar AS                         -- one row per rank
SELECT s.run_key, s.launch_no, m.name, s.slice_id, s.rank, s.step, s.update, s.ts, s.value, s.weight, m.agg, m.unit
FROM scalar s JOIN metric m USING (metric_id) JOIN launch l USING (run_key, launch_no)
WHERE l.superseded_from IS NULL OR s.step < l.superseded_from;

CREATE VIEW v_metric AS                         -- ranks combined
SELECT run_key, name, slice_id, step, update, max(ts) AS ts, count(*) AS n,
       CASE any_value(agg) WHEN 'sum' THEN sum(value) WHEN 'min' THEN min(value) WHEN 'max' THEN max(value) WHEN 'last' THEN coalesce(arg_max(value, ts), max(value))
                           ELSE sum(value * weight) / nullif(sum(weight), 0) END AS value
FROM v_scalar GROUP BY run_key, name, slice_id, step, update;

CREATE VIEW v_metric_step_all AS                -- per launch and step, superseded ones too: the value logged for the step, else its updates combined in the same way
SELECT run_key, launch_no, name, slice_id, step, max(ts) AS ts, coalesce(sum(weight) FILTER (update IS NULL), sum(weight)) AS weight,
       bool_or(weight <> 1) AS weighted,        -- items stand behind the value: the weight is their number
       CASE any_value(agg) WHEN 'sum' THEN coalesce(sum(value) FILTER (update IS NULL), sum(value))
                           WHEN 'min' THEN coalesce(min(value) FILTER (update IS NULL), min(value))
                           WHEN 'max' THEN coalesce(max(value) FILTER (update IS NULL), max(value))
                           WHEN 'last' THEN coalesce(arg_max(value, ts) FILTER (update IS NULL), arg_max(value, update), max(value))   -- a log may tell no times
                           ELSE coalesce(sum(value * weight) FILTER (update IS NULL) / nullif(sum(weight) FILTER (update IS NULL), 0),
                                         sum(value * weight) / nullif(sum(weight), 0)) END AS value
FROM scalar JOIN metric USING (metric_id) GROUP BY run_key, launch_no, name, slice_id, step;

CREATE VIEW v_metric_step AS                    -- the same, superseded rows left out: one row per step
SELECT m.* FROM v_metric_step_all m JOIN launch l USING (run_key, launch_no) WHERE l.superseded_from IS NULL OR m.step < l.superseded_from;

CREATE VIEW v_bucket_all AS                     -- per launch and update, ranks added, superseded ones too; one formula for every derived number
WITH s AS (
    SELECT b.run_key, b.launch_no, b.slice_id, b.step, b.update, b.bucket, max(b.ts) AS ts, count(*) AS ranks, max(b.revision) AS revision,
           count(DISTINCT b.revision) > 1 AS revisions_differ, min(b.w_min) AS w_min, max(b.w_max) AS w_max, sum(tokens)::BIGINT AS tokens,
           sum(clip_high)::BIGINT AS clip_high, sum(clip_low)::BIGINT AS clip_low, sum(clamped)::BIGINT AS clamped, sum(ratio_sum) AS ratio_sum,
           sum(weight_sum) AS weight_sum, sum(abs_adv_weight_sum) AS abs_adv_weight_sum, sum(signed_adv_weight_sum) AS signed_adv_weight_sum,
           sum(entropy_sum) AS entropy_sum, sum(entropy_effect_sum) AS entropy_effect_sum,
           sum(entropy_effect_tokens)::BIGINT AS entropy_effect_tokens, sum(logp_sum) AS logp_sum, sum(log_ratio_sum) AS log_ratio_sum,
           sum(log_ratio_sq_sum) AS log_ratio_sq_sum
    FROM bucket_step b GROUP BY b.run_key, b.launch_no, b.slice_id, b.step, b.update, b.bucket
)
SELECT *, round(1 - w_min, 12) AS eps_low, round(w_max - 1, 12) AS eps_high, tokens / nullif(sum(tokens) OVER u, 0) AS token_frac,
       clip_high / nullif(tokens, 0) AS clip_high_frac, clip_low / nullif(tokens, 0) AS clip_low_frac,
       ratio_sum / nullif(tokens, 0) AS ratio_mean, weight_sum / nullif(tokens, 0) AS weight_mean,
       (ratio_sum - weight_sum) / nullif(tokens, 0) AS clip_gap, abs_adv_weight_sum / nullif(sum(abs_adv_weight_sum) OVER u, 0) AS grad_mass,
       entropy_sum / nullif(tokens, 0) AS entropy_mean, logp_sum / nullif(tokens, 0) AS logp_mean,
       entropy_effect_sum * tokens / nullif(entropy_effect_tokens, 0) AS entropy_effect,   -- NULL: nothing sampled
       log_ratio_sum / nullif(tokens, 0) AS log_ratio_mean, log_ratio_sq_sum / nullif(tokens, 0) AS log_ratio_sq_mean
FROM s WINDOW u AS (PARTITION BY run_key, launch_no, slice_id, step, update);

CREATE VIEW v_bucket AS                         -- the same, superseded rows left out
SELECT b.* FROM v_bucket_all b JOIN launch l USING (run_key, launch_no) WHERE l.superseded_from IS NULL OR b.step < l.superseded_from;

CREATE VIEW v_bucket_step_all AS                -- per launch and step, updates added as well, superseded ones too
SELECT run_key, launch_no, slice_id, step, bucket, max(ts) AS ts, count(*) AS updates, min(ranks) AS ranks, max(revision) AS revision,
       any_value(w_min) AS w_min, any_value(w_max) AS w_max, any_value(eps_low) AS eps_low, any_value(eps_high) AS eps_high,
       sum(tokens)::BIGINT AS tokens, sum(clamped)::BIGINT AS clamped,
       sum(tokens) / nullif(sum(sum(tokens)) OVER t, 0) AS token_frac,
       sum(clip_high) / nullif(sum(tokens), 0) AS clip_high_frac, sum(clip_low) / nullif(sum(tokens), 0) AS clip_low_frac,
       sum(ratio_sum) / nullif(sum(tokens), 0) AS ratio_mean, sum(weight_sum) / nullif(sum(tokens), 0) AS weight_mean,
       (sum(ratio_sum) - sum(weight_sum)) / nullif(sum(tokens), 0) AS clip_gap,
       sum(abs_adv_weight_sum) / nullif(sum(sum(abs_adv_weight_sum)) OVER t, 0) AS grad_mass,
       sum(entropy_sum) / nullif(sum(tokens), 0) AS entropy_mean,
       sum(entropy_effect_sum) * sum(tokens) / nullif(sum(entropy_effect_tokens), 0) AS entropy_effect,
       sum(logp_sum) / nullif(sum(tokens), 0) AS logp_mean, sum(log_ratio_sum) / nullif(sum(tokens), 0) AS log_ratio_mean,
       sum(log_ratio_sq_sum) / nullif(sum(tokens), 0) AS log_ratio_sq_mean
FROM v_bucket_all GROUP BY run_key, launch_no, slice_id, step, bucket WINDOW t AS (PARTITION BY run_key, launch_no, slice_id, step);

CREATE VIEW v_bucket_step AS                    -- the same, superseded rows left out
SELECT b.* FROM v_bucket_step_all b JOIN launch l USING (run_key, launch_no) WHERE l.superseded_from IS NULL OR b.step < l.superseded_from;

CREATE VIEW v_bounds AS                         -- which bounds were in force, since when
SELECT run_key, launch_no, revision, CASE WHEN bucket IN ('R1', 'R2', 'pos_eq1') THEN 1 ELSE -1 END AS sign, w_min, w_max, eps_low, eps_high,
       min(step) AS first_step, max(step) AS last_step
FROM v_bucket WHERE bucket <> 'zero_adv' AND slice_id = 0 GROUP BY ALL;

CREATE VIEW v_ratio_bin AS                      -- long form, ranks and updates added, a whole step in place of its updates: heatmap, what-if
WITH x AS (
    SELECT run_key, slice_id, step, sign, edges_id, unnest(range(1, len(counts) + 1)) AS bin, unnest(counts) AS n, unnest(ratio_sum) AS rs,
           unnest(abs_adv_sum) AS aas, unnest(abs_adv_ratio_sum) AS aars
    FROM ratio_hist h JOIN launch l USING (run_key, launch_no)
    WHERE (l.superseded_from IS NULL OR step < l.superseded_from) AND (update IS NULL OR NOT EXISTS (
        FROM ratio_hist w WHERE w.update IS NULL AND w.edges_id = h.edges_id
        AND (w.run_key, w.launch_no, w.rank, w.step, w.slice_id, w.sign) = (h.run_key, h.launch_no, h.rank, h.step, h.slice_id, h.sign)))
)
SELECT run_key, slice_id, step, sign, bin, coalesce(any_value(edges)[bin - 1], '-infinity') AS lo, coalesce(any_value(edges)[bin], 'infinity') AS hi,
       sum(n)::BIGINT AS tokens, sum(rs) AS ratio_sum, sum(aas) AS abs_adv_sum, sum(aars) AS abs_adv_ratio_sum
FROM x JOIN hist_edges USING (edges_id) GROUP BY run_key, slice_id, step, sign, edges_id, bin;

CREATE VIEW v_rollout AS                        -- the index without superseded rows
SELECT r.* FROM rollout r JOIN launch l USING (run_key, launch_no) WHERE l.superseded_from IS NULL OR r.step < l.superseded_from;

CREATE VIEW v_run AS                            -- a run with its newest launch: is it alive, waiting, paused, and where
SELECT r.*, l.* EXCLUDE (run_key, started_at, ended_at, last_row_at, superseded_from),
       (SELECT max(step) FROM step_done d WHERE d.run_key = r.run_key AND d.launch_no = l.launch_no) AS last_step
FROM run r LEFT JOIN launch l ON l.run_key = r.run_key AND l.launch_no = (SELECT max(launch_no) FROM launch x WHERE x.run_key = r.run_key);

CREATE VIEW v_step AS                           -- is a step complete, and when
SELECT run_key, launch_no, step, min(ts) AS first_ts, max(ts) AS last_ts, count(DISTINCT rank) AS ranks_seen, any_value(l.ranks) AS ranks,
       count(DISTINCT rank) >= any_value(l.ranks) AS complete
FROM step_done JOIN launch l USING (run_key, launch_no) WHERE l.superseded_from IS NULL OR step < l.superseded_from
GROUP BY run_key, launch_no, step;

CREATE VIEW v_command AS                        -- pending | applying | applied | rejected | expired
WITH a AS (
    SELECT run_key, command_id, count(DISTINCT rank) FILTER (status = 'applied') AS applied_ranks,
           min(step) FILTER (status = 'applied') AS applied_step, max(revision) AS revision, bool_or(status = 'rejected') AS rejected, bool_or(status = 'expired') AS expired,
           any_value(applied) FILTER (status = 'applied') AS applied, any_value(message) FILTER (status = 'rejected') AS message
    FROM ack GROUP BY run_key, command_id
)
SELECT c.*, l.launch_no, l.ranks, coalesce(a.applied_ranks, 0) AS applied_ranks, a.applied_step, a.revision, a.applied, a.message,
       CASE WHEN a.rejected THEN 'rejected' WHEN a.applied_ranks >= l.ranks THEN 'applied' WHEN a.applied_ranks > 0 THEN 'applying'
            WHEN a.expired OR c.not_after < now() THEN 'expired' ELSE 'pending' END AS status
FROM command c LEFT JOIN a USING (run_key, command_id)
     LEFT JOIN (SELECT run_key, launch_id, max(launch_no) AS launch_no, arg_max(ranks, launch_no) AS ranks FROM launch GROUP BY run_key, launch_id) l
     ON l.run_key = c.run_key AND l.launch_id = c.launch_id;   -- a launch id that was taken twice means the later start

CREATE VIEW v_alert AS                          -- with the last thing a person said
WITH own AS (SELECT run_key, alert_id, arg_max(mark, mark.ts) AS m FROM mark WHERE kind <> 'note' GROUP BY run_key, alert_id),
asleep AS (                                     -- a snooze is of a signature: it holds for the alerts of that name that come after, too
    SELECT run_key, signature, arg_max(mark, mark.ts) AS s FROM mark WHERE kind IN ('snooze', 'reopen') AND signature IS NOT NULL GROUP BY run_key, signature
),
said AS (
    SELECT alert.*, CASE WHEN s.kind = 'snooze' AND state = 'firing' AND (m.kind IS NULL OR (m.ts < s.ts AND m.kind <> 'false_alarm')) THEN s
                         WHEN m.kind = 'snooze' AND s.ts > m.ts THEN s ELSE m END AS p   -- reopened under another alert of that name
    FROM alert LEFT JOIN own USING (run_key, alert_id) LEFT JOIN asleep USING (run_key, signature)
)
SELECT * EXCLUDE (p), p.kind AS mark, p.actor AS mark_actor, p.ts AS mark_ts, p.until_step AS until_step, p.text AS mark_text FROM said;

CREATE VIEW v_incident AS                       -- signature: the probable cause, the earliest of those that name a failure, are more than a note, and that no other explains
WITH x AS (SELECT *, signature IN ('accuracy_collapse', 'early_accuracy', 'early_all_wrong', 'early_r4') OR severity = 'info' AS unnamed FROM alert)
SELECT run_key, incident_id, min(step_onset) AS step_onset, max(step_last) AS step_last, count(*) AS alerts,
       list(alert_id ORDER BY step_onset, launch_no, rule, slice_id, ordinal) AS alert_ids,
       first(signature ORDER BY unnamed, step_onset, launch_no, rule, slice_id, ordinal) FILTER (inhibited_by IS NULL) AS signature,
       first(driver ORDER BY inhibited_by IS NOT NULL, unnamed, step_onset, launch_no, rule, slice_id, ordinal) FILTER (driver IS NOT NULL) AS driver,
       bool_or(state = 'firing' AND NOT superseded) AS firing, bool_and(superseded) AS superseded
FROM x GROUP BY run_key, incident_id;
