
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE public.ledger_datasets (
    name character varying(100) NOT NULL,
    unit character varying(10) NOT NULL,
    rho_budget double precision NOT NULL,
    delta double precision NOT NULL,
    epsilon_budget double precision,
    created character varying(32) NOT NULL
);

CREATE TABLE public.ledger_events (
    number integer NOT NULL,
    dataset character varying(100) NOT NULL,
    run_id character varying(100),
    kind character varying(20) NOT NULL,
    details json NOT NULL,
    at character varying(32) NOT NULL
);

CREATE SEQUENCE public.ledger_events_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.ledger_events_number_seq OWNED BY public.ledger_events.number;

CREATE TABLE public.ledger_runs (
    dataset character varying(100) NOT NULL,
    number integer NOT NULL,
    run_id character varying(100) NOT NULL,
    rho double precision NOT NULL,
    rho_by_stage json NOT NULL,
    state character varying(10) NOT NULL,
    identity character varying(128) NOT NULL,
    key_commitment character varying(128) NOT NULL,
    rho_budget double precision NOT NULL,
    epsilon_budget double precision,
    delta double precision NOT NULL,
    reserved_at character varying(32) NOT NULL,
    settled_at character varying(32)
);

CREATE TABLE public.ledger_schema (
    version integer NOT NULL
);

ALTER TABLE ONLY public.ledger_events ALTER COLUMN number SET DEFAULT nextval('public.ledger_events_number_seq'::regclass);

INSERT INTO public.ledger_datasets VALUES ('mails', 'user', 0.22424916824634533, 1e-05, 3, '2026-11-21T23:42:58.889+00:00');
INSERT INTO public.ledger_datasets VALUES ('unused', 'example', 0.003953191141217896, 1e-09, 0.5, '2026-11-21T23:42:58.942+00:00');
INSERT INTO public.ledger_datasets VALUES ('visits', 'example', 2, 1e-06, NULL, '2026-11-21T23:42:58.821+00:00');

INSERT INTO public.ledger_events VALUES (1, 'visits', NULL, 'dataset added', '{"unit": "example", "rho_budget": 1.0, "epsilon_budget": null, "delta": 1e-06}', '2026-11-21T23:42:58.884+00:00');
INSERT INTO public.ledger_events VALUES (2, 'mails', NULL, 'dataset added', '{"unit": "user", "rho_budget": 0.22424916824634533, "epsilon_budget": 3.0, "delta": 1e-05}', '2026-11-21T23:42:58.938+00:00');
INSERT INTO public.ledger_events VALUES (3, 'unused', NULL, 'dataset added', '{"unit": "example", "rho_budget": 0.003953191141217896, "epsilon_budget": 0.5, "delta": 1e-09}', '2026-11-21T23:42:58.998+00:00');
INSERT INTO public.ledger_events VALUES (4, 'visits', 'first', 'reserved', '{"rho": 0.19207275390625}', '2026-11-21T23:42:59.070+00:00');
INSERT INTO public.ledger_events VALUES (5, 'visits', 'first', 'settled', '{}', '2026-11-21T23:42:59.148+00:00');
INSERT INTO public.ledger_events VALUES (6, 'visits', 'second', 'reserved', '{"rho": 0.7333333333333334}', '2026-11-21T23:42:59.308+00:00');
INSERT INTO public.ledger_events VALUES (7, 'visits', 'second', 'resumed', '{}', '2026-11-21T23:42:59.584+00:00');
INSERT INTO public.ledger_events VALUES (8, 'visits', 'third', 'refused', '{"rho": 0.5, "reason": "budget exceeded"}', '2026-11-21T23:42:59.666+00:00');
INSERT INTO public.ledger_events VALUES (9, 'visits', NULL, 'budget changed', '{"reason": "a second year''s records", "before": {"rho_budget": 1.0, "epsilon_budget": null, "delta": 1e-06}, "after": {"rho_budget": 2.0, "epsilon_budget": null, "delta": 1e-06}}', '2026-11-21T23:42:59.732+00:00');
INSERT INTO public.ledger_events VALUES (10, 'visits', 'third', 'reserved', '{"rho": 0.5}', '2026-11-21T23:42:59.808+00:00');
INSERT INTO public.ledger_events VALUES (11, 'mails', 'first', 'reserved', '{"rho": 1e-09}', '2026-11-21T23:42:59.888+00:00');

INSERT INTO public.ledger_runs VALUES ('visits', 1, 'first', 0.19207275390625, '{"centers": 0.0, "noisy_counts": 0.005, "generation": 0.18707275390625}', 'settled', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ffffffffffffffffffffffffffffffff', 1, NULL, 1e-06, '2026-11-21T23:42:59.056+00:00', '2026-11-21T23:42:59.133+00:00');
INSERT INTO public.ledger_runs VALUES ('visits', 2, 'second', 0.7333333333333334, '{"centers": 0.1, "noisy_counts": 0.3333333333333333, "generation": 0.30000000000000004}', 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ssssssssssssssssssssssssssssssss', 1, NULL, 1e-06, '2026-11-21T23:42:59.297+00:00', NULL);
INSERT INTO public.ledger_runs VALUES ('visits', 3, 'third', 0.5, '{"generation": 0.5}', 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'tttttttttttttttttttttttttttttttt', 2, NULL, 1e-06, '2026-11-21T23:42:59.805+00:00', NULL);
INSERT INTO public.ledger_runs VALUES ('mails', 1, 'first', 1e-09, '{"generation": 1e-09}', 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ffffffffffffffffffffffffffffffff', 0.22424916824634533, 3, 1e-05, '2026-11-21T23:42:59.880+00:00', NULL);

INSERT INTO public.ledger_schema VALUES (1);

SELECT pg_catalog.setval('public.ledger_events_number_seq', 11, true);

ALTER TABLE ONLY public.ledger_datasets
    ADD CONSTRAINT ledger_datasets_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.ledger_events
    ADD CONSTRAINT ledger_events_pkey PRIMARY KEY (number);

ALTER TABLE ONLY public.ledger_runs
    ADD CONSTRAINT ledger_runs_dataset_run_id_key UNIQUE (dataset, run_id);

ALTER TABLE ONLY public.ledger_runs
    ADD CONSTRAINT ledger_runs_pkey PRIMARY KEY (dataset, number);

ALTER TABLE ONLY public.ledger_events
    ADD CONSTRAINT ledger_events_dataset_fkey FOREIGN KEY (dataset) REFERENCES public.ledger_datasets(name);

ALTER TABLE ONLY public.ledger_runs
    ADD CONSTRAINT ledger_runs_dataset_fkey FOREIGN KEY (dataset) REFERENCES public.ledger_datasets(name);

