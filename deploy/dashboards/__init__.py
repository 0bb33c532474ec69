"""Grafana's dashboards and Prometheus' alert rules as code; `python -m deploy.dashboards` writes their files.

deploy/helm/dashboards/*.json   for Grafana, by the chart's ConfigMaps or by provisioning
deploy/helm/alerts/kbqa.yaml    the rules, for any Prometheus; the chart makes a PrometheusRule of them
"""
