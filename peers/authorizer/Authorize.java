// Kafka's StandardAuthorizer, without a broker: `java Authorize.java` reads ACLs and questions from standard input, one
// per line with tabs between the fields, and prints one line with a letter for each question: y or n.
//
//   N                                                               forget all ACLs
//   A  TYPE PATTERN NAME PRINCIPAL HOST OPERATION PERMISSION        add one
//   Q  PRINCIPAL HOST TYPE NAME OPERATION                           may it do this?
//   S  PRINCIPAL HOST TYPE OPERATION                                may it do this on some resource of the type?

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Authorize {
    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        static Client of(String principal, String host) throws Exception {
            return new Client(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
        }

        @Override public String listenerName() { return "PLAINTEXT"; }
        @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        @Override public int requestType() { return 0; }
        @Override public int requestVersion() { return 0; }
        @Override public String clientId() { return "peer"; }
        @Override public int correlationId() { return 0; }
    }

    static StandardAuthorizer created() {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of());
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        return authorizer;
    }

    static AuthorizationResult answer(StandardAuthorizer authorizer, String[] part) throws Exception {
        Client client = Client.of(part[1], part[2]);
        ResourceType type = ResourceType.valueOf(part[3]);
        if (part[0].equals("S")) {
            return authorizer.authorizeByResourceType(client, AclOperation.valueOf(part[4]), type);
        }
        ResourcePattern resource = new ResourcePattern(type, part[4], PatternType.LITERAL);
        Action action = new Action(AclOperation.valueOf(part[5]), resource, 1, true, true);
        return authorizer.authorize(client, List.of(action)).get(0);
    }

    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        StandardAuthorizer authorizer = created();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] part = line.split("\t");
            switch (part[0]) {
                case "N" -> authorizer = created();
                case "A" -> authorizer.addAcl(
                    Uuid.randomUuid(),
                    new StandardAcl(
                        ResourceType.valueOf(part[1]), part[3], PatternType.valueOf(part[2]), part[4], part[5],
                        AclOperation.valueOf(part[6]), AclPermissionType.valueOf(part[7])));
                default -> answers.append(
                    answer(authorizer, part) == AuthorizationResult.ALLOWED ? 'y' : 'n');
            }
        }
        System.out.println(answers);
    }
}
