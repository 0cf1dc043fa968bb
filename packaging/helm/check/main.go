// Command check reads the manifests that `helm template` prints and decodes each into the type that
// the API server has for it. An unknown or doubled field, or a value of a wrong type, is an error.
// It prints the manifests as one JSON array.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigs "sigs.k8s.io/yaml"
)

type meta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// typeOf returns a new value of the manifest's type.
func typeOf(of meta) (any, error) {
	switch of.APIVersion + "/" + of.Kind {
	case "apps/v1/Deployment":
		return &appsv1.Deployment{}, nil
	case "autoscaling/v2/HorizontalPodAutoscaler":
		return &autoscalingv2.HorizontalPodAutoscaler{}, nil
	case "monitoring.coreos.com/v1/PodMonitor":
		return &monitoringv1.PodMonitor{}, nil
	case "monitoring.coreos.com/v1/PrometheusRule":
		return &monitoringv1.PrometheusRule{}, nil
	case "networking.k8s.io/v1/NetworkPolicy":
		return &networkingv1.NetworkPolicy{}, nil
	case "policy/v1/PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}, nil
	case "v1/ConfigMap":
		return &corev1.ConfigMap{}, nil
	case "v1/Service":
		return &corev1.Service{}, nil
	case "v1/ServiceAccount":
		return &corev1.ServiceAccount{}, nil
	}
	return nil, fmt.Errorf("no type is known for %s/%s", of.APIVersion, of.Kind)
}

func run(input io.Reader) ([]any, error) {
	manifests := []any{}
	documents := yaml.NewYAMLReader(bufio.NewReader(input))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, err
		}
		var of meta
		if err := sigs.Unmarshal(document, &of); err != nil {
			return nil, err
		}
		if of.Kind == "" {
			continue // Only comments.
		}
		manifest, err := typeOf(of)
		if err != nil {
			return nil, err
		}
		if err := sigs.UnmarshalStrict(document, manifest); err != nil {
			return nil, fmt.Errorf("%s %s: %w", of.Kind, of.Metadata.Name, err)
		}
		manifests = append(manifests, manifest)
	}
}

func main() {
	manifests, err := run(os.Stdin)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(manifests)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}
