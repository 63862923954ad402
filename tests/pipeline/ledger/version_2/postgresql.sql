


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
    created character varying(32) NOT NULL,
    renyi_order double precision,
    renyi_bound double precision
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
    state character varying(10) NOT NULL,
    identity character varying(128) NOT NULL,
    key_commitment character varying(128) NOT NULL,
    rho_budget double precision NOT NULL,
    epsilon_budget double precision,
    delta double precision NOT NULL,
    reserved_at character varying(32) NOT NULL,
    settled_at character varying(32),
    cost json,
    renyi_order double precision
);



CREATE TABLE public.ledger_schema (
    version integer NOT NULL
);



ALTER TABLE ONLY public.ledger_events ALTER COLUMN number SET DEFAULT nextval('public.ledger_events_number_seq'::regclass);



INSERT INTO public.ledger_datasets VALUES ('unused', 'user', 0.5, 1e-09, NULL, '2026-11-26T09:26:18.748+00:00', NULL, NULL);
INSERT INTO public.ledger_datasets VALUES ('visits', 'example', 1.2873494051342345, 1e-06, 9, '2026-11-26T09:26:18.738+00:00', 4.104021104089419, 5.283309127007858);



INSERT INTO public.ledger_events VALUES (1, 'visits', NULL, 'dataset added', '{"unit": "example", "rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}', '2026-11-26T09:26:18.746+00:00');
INSERT INTO public.ledger_events VALUES (2, 'unused', NULL, 'dataset added', '{"unit": "user", "rho_budget": 0.5, "epsilon_budget": null, "delta": 1e-09}', '2026-11-26T09:26:18.757+00:00');
INSERT INTO public.ledger_events VALUES (3, 'visits', 'first', 'reserved', '{"rho": 0.018396447982945388}', '2026-11-26T09:26:19.388+00:00');
INSERT INTO public.ledger_events VALUES (4, 'visits', 'first', 'settled', '{}', '2026-11-26T09:26:20.091+00:00');
INSERT INTO public.ledger_events VALUES (5, 'visits', 'second', 'reserved', '{"rho": 0.03125}', '2026-11-26T09:26:20.104+00:00');
INSERT INTO public.ledger_events VALUES (6, 'visits', NULL, 'budget changed', '{"reason": "a second year''s records", "before": {"rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}, "after": {"rho_budget": 1.2873494051342345, "epsilon_budget": 9.0, "delta": 1e-06}}', '2026-11-26T09:26:20.264+00:00');
INSERT INTO public.ledger_events VALUES (7, 'visits', 'third', 'reserved', '{"rho": 0.30000000000000004}', '2026-11-26T09:26:20.286+00:00');



INSERT INTO public.ledger_runs VALUES ('visits', 1, 'first', 0.018396447982945388, 'settled', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ffffffffffffffffffffffffffffffff', 1.0523580045569878, 8, 1e-06, '2026-11-26T09:26:19.383+00:00', '2026-11-26T09:26:20.090+00:00', '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"training": {"kind": "SelfComposedDpEvent", "event": {"kind": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"kind": "GaussianDpEvent", "noise_multiplier": 1.0}}, "count": 200}}}', 4.4227696373590675);
INSERT INTO public.ledger_runs VALUES ('visits', 2, 'second', 0.03125, 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ssssssssssssssssssssssssssssssss', 1.0523580045569878, 8, 1e-06, '2026-11-26T09:26:20.103+00:00', NULL, '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"votes": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 4.0, "sensitivity": 1024, "cells": 4}, "noisy_counts": {"kind": "ZCDpEvent", "rho": 0.0}}}', 4.4227696373590675);
INSERT INTO public.ledger_runs VALUES ('visits', 3, 'third', 0.30000000000000004, 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'tttttttttttttttttttttttttttttttt', 1.2873494051342345, 9, 1e-06, '2026-11-26T09:26:20.283+00:00', NULL, '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"generation": {"kind": "TruncatedZCDpEvent", "rho": 0.30000000000000004, "omega": 40.0}}}', 4.104021104089419);



INSERT INTO public.ledger_schema VALUES (2);



SELECT pg_catalog.setval('public.ledger_events_number_seq', 7, true);



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




