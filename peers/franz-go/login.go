package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	allowedTopic   = "orders"
	forbiddenTopic = "forbidden"
	refusalTime    = 20 * time.Second
)

// credentials are one login: by a mechanism, or without one by the client's certificate.
type credentials struct{ Ca, Certificate, Key, Mechanism, User, Password, Token string }

// login tries each of the logins in the input, a JSON file of credentials by name.
func login(ctx context.Context, p *peer) (result, error) {
	text, err := os.ReadFile(p.input)
	if err != nil {
		return nil, err
	}
	logins := map[string]credentials{}
	if err := json.Unmarshal(text, &logins); err != nil {
		return nil, err
	}
	seen := result{}
	for name, each := range logins {
		options, err := each.options()
		if err != nil {
			return nil, err
		}
		seen[name] = p.use(ctx, name, options)
	}
	return seen, nil
}

// use sends a message and reads it back in a group; then it sends one to a topic without the right.
func (p *peer) use(ctx context.Context, value string, options []kgo.Opt) result {
	client, err := p.client(append(options, kgo.RequestRetries(1))...)
	if err != nil {
		return result{"sent": err.Error()}
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		return result{"sent": err.Error()}
	}
	if err := client.ProduceSync(limited, &kgo.Record{Topic: allowedTopic, Value: []byte(value)}).FirstErr(); err != nil {
		return result{"sent": err.Error()}
	}
	group := p.prefix + "-" + regexp.MustCompile("[^A-Za-z0-9]").ReplaceAllString(value, "-")
	read := p.finds(ctx, value, append(options, kgo.ConsumerGroup(group)))
	err = client.ProduceSync(limited, &kgo.Record{Topic: forbiddenTopic, Value: []byte(value)}).FirstErr()
	forbidden := "yes"
	if err != nil {
		forbidden = err.Error()
	}
	return result{"sent": "yes", "read": read, "forbidden": forbidden}
}

// finds tells whether the allowed topic has this value.
func (p *peer) finds(ctx context.Context, value string, options []kgo.Opt) bool {
	options = append(options, kgo.ConsumeTopics(allowedTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := p.client(options...)
	if err != nil {
		return false
	}
	defer client.Close()
	for ctx.Err() == nil {
		for _, record := range client.PollFetches(ctx).Records() {
			if string(record.Value) == value {
				return true
			}
		}
	}
	return false
}

func (c credentials) options() ([]kgo.Opt, error) {
	text, err := os.ReadFile(c.Ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + c.Ca)
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(config)}
	if mechanism := c.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (c credentials) mechanism() sasl.Mechanism {
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: c.Token}.AsMechanism()
	}
	return nil
}
