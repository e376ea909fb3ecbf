package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member is a client with what it holds. Its balancer names the assignor of the coordinator: sticky is `uniform`.
type member struct {
	client *kgo.Client
	*shares
}

func (p *peer) member(ctx context.Context, group string, options ...kgo.Opt) (*member, error) {
	mine := newShares()
	options = append(
		options, kgo.ConsumerGroup(group), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
		kgo.OnPartitionsAssigned(mine.add), kgo.OnPartitionsRevoked(mine.remove), kgo.OnPartitionsLost(mine.remove),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second),
	)
	client, err := p.client(options...)
	if err == nil {
		go poll(ctx, client)
	}
	return &member{client, mine}, err
}

// owns waits until each member holds as many partitions as named.
func owns(ctx context.Context, count int, members ...*member) error {
	return until(ctx, func() bool {
		for _, each := range members {
			if each.count() != count {
				return false
			}
		}
		return true
	})
}

// consumerProtocol has two members of the consumer protocol, which share four partitions.
func consumerProtocol(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "members", 4)
	if err != nil {
		return nil, err
	}
	name := p.name("members-group")
	first, err := p.member(ctx, name, kgo.ConsumeTopics(topic))
	if err != nil {
		return nil, err
	}
	defer first.client.Close()
	if err := owns(ctx, 4, first); err != nil {
		return nil, fmt.Errorf("alone: %w", err)
	}
	second, err := p.member(ctx, name, kgo.ConsumeTopics(topic))
	if err != nil {
		return nil, err
	}
	if err := owns(ctx, 2, first, second); err != nil {
		return nil, fmt.Errorf("two: %d and %d: %w", first.count(), second.count(), err)
	}
	described, err := kadm.NewClient(first.client).DescribeConsumerGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	second.client.Close()
	if err := owns(ctx, 4, first); err != nil {
		return nil, fmt.Errorf("alone again: %w", err)
	}
	group := described[name]
	return result{
		"state": group.State, "members": len(group.Members), "assignor": group.AssignorName, "kept": first.kept(),
	}, nil
}

// staticMembers closes a static member and starts it again: it has the same partitions, and the other one keeps its own.
func staticMembers(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "static", 4)
	if err != nil {
		return nil, err
	}
	name := p.name("static-group")
	staying, err := p.member(ctx, name, kgo.ConsumeTopics(topic), kgo.InstanceID("staying"))
	if err != nil {
		return nil, err
	}
	defer staying.client.Close()
	former, err := p.member(ctx, name, kgo.ConsumeTopics(topic), kgo.InstanceID("returning"))
	if err != nil {
		return nil, err
	}
	if err := owns(ctx, 2, staying, former); err != nil {
		return nil, fmt.Errorf("two: %d and %d: %w", staying.count(), former.count(), err)
	}
	had, lost := former.numbers(), staying.losses()
	former.client.Close()
	returned, err := p.member(ctx, name, kgo.ConsumeTopics(topic), kgo.InstanceID("returning"))
	if err != nil {
		return nil, err
	}
	defer returned.client.Close()
	if err := owns(ctx, 2, staying, returned); err != nil {
		return nil, fmt.Errorf("returned: %d and %d: %w", staying.count(), returned.count(), err)
	}
	return result{"same": fmt.Sprint(had) == fmt.Sprint(returned.numbers()), "moved": staying.losses() - lost}, nil
}

// regex subscribes to an expression, which the broker resolves.
func regex(ctx context.Context, p *peer) (result, error) {
	for _, suffix := range []string{"regex-a", "regex-b", "other"} {
		if _, err := p.topic(ctx, suffix, 2); err != nil {
			return nil, err
		}
	}
	expression := kgo.ConsumeTopics("^" + p.name("regex-[ab]") + "$")
	name := p.name("regex-group")
	only, err := p.member(ctx, name, expression, kgo.ConsumeRegex())
	if err != nil {
		return nil, err
	}
	defer only.client.Close()
	admin := kadm.NewClient(only.client)
	var topics []string
	err = until(ctx, func() bool {
		described, err := admin.DescribeConsumerGroups(ctx, name)
		if err != nil || len(described[name].Members) != 1 {
			return false
		}
		topics = described.AssignedPartitions().Topics()
		return len(topics) > 1
	})
	for index := range topics {
		topics[index] = topics[index][len(p.prefix):]
	}
	return result{"topics": topics}, err
}
