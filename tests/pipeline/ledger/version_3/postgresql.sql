


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
    renyi_bound double precision,
    failure_budget double precision
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
    renyi_order double precision,
    failure double precision
);



CREATE TABLE public.ledger_schema (
    version integer NOT NULL
);



ALTER TABLE ONLY public.ledger_events ALTER COLUMN number SET DEFAULT nextval('public.ledger_events_number_seq'::regclass);



INSERT INTO public.ledger_datasets VALUES ('gaussian', 'example', 0.33281779638838654, 1e-06, 4, '2026-11-27T04:19:24.896+00:00', NULL, NULL, 5e-07);
INSERT INTO public.ledger_datasets VALUES ('renyi', 'example', 0.3110649549408348, 1e-06, 4, '2026-11-27T04:19:27.218+00:00', 4.104021104089419, 5.283309127007858, NULL);
INSERT INTO public.ledger_datasets VALUES ('unused', 'user', 0.5, 1e-09, NULL, '2026-11-27T04:19:27.394+00:00', NULL, NULL, 5e-10);



INSERT INTO public.ledger_events VALUES (1, 'gaussian', NULL, 'dataset added', '{"unit": "example", "rho_budget": 5.052874872254217, "epsilon_budget": 20.0, "delta": 1e-06, "failure_budget": 5e-07}', '2026-11-27T04:19:24.909+00:00');
INSERT INTO public.ledger_events VALUES (2, 'gaussian', NULL, 'budget changed', '{"reason": "before the first charge", "before": {"rho_budget": 5.052874872254217, "epsilon_budget": 20.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 1.1202532274804582, "epsilon_budget": 8.0, "delta": 1e-06, "failure_budget": 5e-07}}', '2026-11-27T04:19:24.931+00:00');
INSERT INTO public.ledger_events VALUES (3, 'gaussian', 'first', 'reserved', '{"rho": 0.03558290024764062}', '2026-11-27T04:19:25.871+00:00');
INSERT INTO public.ledger_events VALUES (4, 'gaussian', NULL, 'budget changed', '{"reason": "less", "before": {"rho_budget": 1.1202532274804582, "epsilon_budget": 8.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 0.4947135819162093, "epsilon_budget": 5.0, "delta": 1e-06, "failure_budget": 5e-07}}', '2026-11-27T04:19:26.734+00:00');
INSERT INTO public.ledger_events VALUES (5, 'gaussian', 'second', 'reserved', '{"rho": 0.0003125000003849456}', '2026-11-27T04:19:26.799+00:00');
INSERT INTO public.ledger_events VALUES (6, 'gaussian', NULL, 'budget changed', '{"reason": "more", "before": {"rho_budget": 0.4947135819162093, "epsilon_budget": 5.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 1.3690264705488968, "epsilon_budget": 9.0, "delta": 1e-06, "failure_budget": 5e-07}}', '2026-11-27T04:19:27.035+00:00');
INSERT INTO public.ledger_events VALUES (7, 'gaussian', NULL, 'budget changed', '{"reason": "less again", "before": {"rho_budget": 1.3690264705488968, "epsilon_budget": 9.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 0.33281779638838654, "epsilon_budget": 4.0, "delta": 1e-06, "failure_budget": 5e-07}}', '2026-11-27T04:19:27.048+00:00');
INSERT INTO public.ledger_events VALUES (8, 'gaussian', 'third', 'reserved', '{"rho": 0.0003125000003849456}', '2026-11-27T04:19:27.074+00:00');
INSERT INTO public.ledger_events VALUES (9, 'gaussian', 'first', 'settled', '{}', '2026-11-27T04:19:27.217+00:00');
INSERT INTO public.ledger_events VALUES (10, 'renyi', NULL, 'dataset added', '{"unit": "example", "rho_budget": 4.789373059556686, "epsilon_budget": 20.0, "delta": 1e-06}', '2026-11-27T04:19:27.226+00:00');
INSERT INTO public.ledger_events VALUES (11, 'renyi', NULL, 'budget changed', '{"reason": "before the first charge", "before": {"rho_budget": 4.789373059556686, "epsilon_budget": 20.0, "delta": 1e-06}, "after": {"rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}}', '2026-11-27T04:19:27.239+00:00');
INSERT INTO public.ledger_events VALUES (12, 'renyi', 'first', 'reserved', '{"rho": 0.018396447982945388}', '2026-11-27T04:19:27.263+00:00');
INSERT INTO public.ledger_events VALUES (13, 'renyi', NULL, 'budget changed', '{"reason": "less", "before": {"rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}, "after": {"rho_budget": 0.46306499013862984, "epsilon_budget": 5.0, "delta": 1e-06}}', '2026-11-27T04:19:27.275+00:00');
INSERT INTO public.ledger_events VALUES (14, 'renyi', 'second', 'reserved', '{"rho": 0.0003125}', '2026-11-27T04:19:27.301+00:00');
INSERT INTO public.ledger_events VALUES (15, 'renyi', NULL, 'budget changed', '{"reason": "more", "before": {"rho_budget": 0.46306499013862984, "epsilon_budget": 5.0, "delta": 1e-06}, "after": {"rho_budget": 1.2873494051342345, "epsilon_budget": 9.0, "delta": 1e-06}}', '2026-11-27T04:19:27.315+00:00');
INSERT INTO public.ledger_events VALUES (16, 'renyi', NULL, 'budget changed', '{"reason": "less again", "before": {"rho_budget": 1.2873494051342345, "epsilon_budget": 9.0, "delta": 1e-06}, "after": {"rho_budget": 0.3110649549408348, "epsilon_budget": 4.0, "delta": 1e-06}}', '2026-11-27T04:19:27.328+00:00');
INSERT INTO public.ledger_events VALUES (17, 'renyi', 'third', 'reserved', '{"rho": 0.0003125}', '2026-11-27T04:19:27.368+00:00');
INSERT INTO public.ledger_events VALUES (18, 'renyi', 'first', 'settled', '{}', '2026-11-27T04:19:27.387+00:00');
INSERT INTO public.ledger_events VALUES (19, 'unused', NULL, 'dataset added', '{"unit": "user", "rho_budget": 0.5, "epsilon_budget": null, "delta": 1e-09, "failure_budget": 5e-10}', '2026-11-27T04:19:27.407+00:00');



INSERT INTO public.ledger_runs VALUES ('gaussian', 2, 'second', 0.0003125000003849456, 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ssssssssssssssssssssssssssssssss', 0.4947135819162093, 5, 1e-06, '2026-11-27T04:19:26.795+00:00', NULL, '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}', NULL, NULL);
INSERT INTO public.ledger_runs VALUES ('gaussian', 3, 'third', 0.0003125000003849456, 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'tttttttttttttttttttttttttttttttt', 0.33281779638838654, 4, 1e-06, '2026-11-27T04:19:27.072+00:00', NULL, '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}', NULL, NULL);
INSERT INTO public.ledger_runs VALUES ('gaussian', 1, 'first', 0.03558290024764062, 'settled', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ffffffffffffffffffffffffffffffff', 1.1202532274804582, 8, 1e-06, '2026-11-27T04:19:25.868+00:00', '2026-11-27T04:19:27.216+00:00', '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "SelfComposedDpEvent", "event": {"kind": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"kind": "GaussianDpEvent", "noise_multiplier": 1.0}}, "count": 200}}}', NULL, 3.0396355092701334e-07);
INSERT INTO public.ledger_runs VALUES ('renyi', 2, 'second', 0.0003125, 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ssssssssssssssssssssssssssssssss', 0.46306499013862984, 5, 1e-06, '2026-11-27T04:19:27.299+00:00', NULL, '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}', 4.4227696373590675, NULL);
INSERT INTO public.ledger_runs VALUES ('renyi', 3, 'third', 0.0003125, 'reserved', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'tttttttttttttttttttttttttttttttt', 0.3110649549408348, 4, 1e-06, '2026-11-27T04:19:27.362+00:00', NULL, '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}', 4.104021104089419, NULL);
INSERT INTO public.ledger_runs VALUES ('renyi', 1, 'first', 0.018396447982945388, 'settled', 'iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii', 'ffffffffffffffffffffffffffffffff', 1.0523580045569878, 8, 1e-06, '2026-11-27T04:19:27.260+00:00', '2026-11-27T04:19:27.385+00:00', '{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "SelfComposedDpEvent", "event": {"kind": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"kind": "GaussianDpEvent", "noise_multiplier": 1.0}}, "count": 200}}}', 4.4227696373590675, NULL);



INSERT INTO public.ledger_schema VALUES (3);



SELECT pg_catalog.setval('public.ledger_events_number_seq', 19, true);



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
